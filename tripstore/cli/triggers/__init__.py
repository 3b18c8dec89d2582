"""`tripstore triggers`."""
