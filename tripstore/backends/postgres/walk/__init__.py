"""A walk through tables by their blocks: which files there are, and what moves in them without a captured change."""
