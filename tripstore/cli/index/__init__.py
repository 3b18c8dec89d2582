"""`tripstore index`."""
