"""Cells as Parquet files for a warehouse: by column and day, each cell in exactly one committed file."""
