"""Commands of `tripstore shards`."""
