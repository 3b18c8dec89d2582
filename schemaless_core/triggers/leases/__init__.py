"""Which worker serves which shard: what workers agree on, the leader, its plan, and where it is kept."""
