"""The diff of two stores: parts, sums, keys, suspects, old versions, indexes, and the list of what differs."""
