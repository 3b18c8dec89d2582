"""The legacy store as sums and hashes, for a diff: each table is read once."""
