"""What a call means: writing, reading by key, the log, enumerating, mending. Checks, deadlines, results."""
