"""Cells on MySQL 8+ and MariaDB 10.11+: one database per shard, one meta database per server."""
