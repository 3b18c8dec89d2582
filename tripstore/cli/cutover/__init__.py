"""`tripstore cutover`."""
