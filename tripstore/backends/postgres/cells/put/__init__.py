"""Writing: cells of mapped columns under their row's lock, cells of our own, tombstones."""
