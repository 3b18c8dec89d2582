"""What a server keeps for groups: offsets, parked cells, calls, and the puts that join their progress."""
