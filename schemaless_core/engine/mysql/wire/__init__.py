"""Connections to one server: opened, pooled, leased, given up; their packets, and errors of the driver made ours."""
