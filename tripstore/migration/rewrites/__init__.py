"""Which queries are rewritten and proven, and which uses of the tables remain."""
