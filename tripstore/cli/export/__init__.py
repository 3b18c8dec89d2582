"""`tripstore export`: cells as Parquet files."""
