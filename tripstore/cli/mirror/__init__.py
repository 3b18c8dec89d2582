"""`tripstore mirror`."""
