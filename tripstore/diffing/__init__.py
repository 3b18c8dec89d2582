"""Diffs of the two stores of a configuration: which stores, as whom, and what is still on its way between them."""
