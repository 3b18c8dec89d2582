"""`tripstore init`."""
