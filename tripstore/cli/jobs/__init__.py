"""What backfills, diffs and repairs share on the command line, since all three are jobs."""
