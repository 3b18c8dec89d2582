"""Experiments: an old query and the one that replaces it, held against each other as a store's reads are."""
