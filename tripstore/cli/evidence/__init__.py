"""`tripstore evidence`."""
