"""`tripstore schema`."""
