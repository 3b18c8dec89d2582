"""`tripstore console`: the migration on one live page."""
