"""Copies of shards on MySQL or MariaDB, and how one becomes the shard."""
