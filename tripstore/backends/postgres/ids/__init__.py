"""From integer ids to UUIDs, while the tables are in use."""
