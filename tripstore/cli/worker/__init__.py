"""`tripstore worker`."""
