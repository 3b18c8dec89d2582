"""Partitions that come and go: the look at them, the event that calls it, and guards for new ones."""
