"""A purge: cells that go for good, with keys that are kept so that they never come back."""
