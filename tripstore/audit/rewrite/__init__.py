"""The call of tripstore that replaces each use of a legacy table, where it is certain; a comment where it is not."""
