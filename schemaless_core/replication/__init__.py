"""A standby: a datastore of its own elsewhere, with the same log, which may lead; and the one that led before."""
