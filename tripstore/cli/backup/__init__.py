"""`tripstore backup`: all shards as files, and a datastore made of such."""
