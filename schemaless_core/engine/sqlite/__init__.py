"""Cells on SQLite, embedded: one file per cluster, for trying things out and for fast tests. Same contract."""
