"""Connections to Postgres, their deadlines, and what the driver raises."""
