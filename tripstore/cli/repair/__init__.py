"""`tripstore repair`."""
