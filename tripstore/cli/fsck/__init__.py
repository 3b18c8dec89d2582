"""`tripstore fsck`: what stands on the servers, held against the invariants."""
