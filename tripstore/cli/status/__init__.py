"""`tripstore status`."""
