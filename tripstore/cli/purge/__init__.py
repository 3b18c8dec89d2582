"""`tripstore purge`: cells that go for good."""
