"""Which worker serves which shard, kept in ZooKeeper in place of the control database."""
