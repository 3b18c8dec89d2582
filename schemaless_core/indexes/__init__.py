"""Sharded secondary indexes: definitions, entries, queries and what keeps the entries up to date."""
