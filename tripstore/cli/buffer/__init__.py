"""`tripstore buffer`."""
