"""fsck: says whether what stands on the servers is as the invariants want it, while everything goes on."""
