"""`tripstore ids`."""
