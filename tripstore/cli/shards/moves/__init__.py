"""Shards that go to other clusters."""
