"""Which server a call goes to: clusters behind breakers, where each shard is, and how both are made and examined."""
