"""Backups: the logs of all shards, and what stands beside them, as files; and a datastore made of these."""
