"""Experiments: a service's old query and its rewrite side by side, and by flags the rewrite in the old one's place."""
