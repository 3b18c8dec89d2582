"""`tripstore audit`."""
