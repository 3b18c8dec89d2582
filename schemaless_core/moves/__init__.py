"""Shards that go from one cluster to another while callers read and write."""
