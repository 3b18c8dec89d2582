"""Bodies that take less room: dictionaries, and jobs that store old cells as puts store new ones."""
