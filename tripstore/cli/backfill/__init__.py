"""`tripstore backfill`."""
