"""`tripstore cell`."""
