"""A layout against the live database: keys, lookups, triggers, rights, and the row keys of children."""
