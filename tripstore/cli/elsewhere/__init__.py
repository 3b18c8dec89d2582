"""Jobs that are done elsewhere: their parts become tasks of an engine that runs on hosts of its own."""
