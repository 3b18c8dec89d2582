"""The legacy store in `tripstore schema` and `tripstore doctor`."""
