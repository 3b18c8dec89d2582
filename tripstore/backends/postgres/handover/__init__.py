"""What Postgres does in a hand-over: the row that decides, the gate that follows it, the barrier, the queue."""
