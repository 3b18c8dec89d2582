"""Repair of the mirror: what a diff found is planned row by row, done, and looked at again."""
