"""Diffs of the two stores of a configuration: which stores, in which roles, what is still on its way between them."""
