"""What a repair does to rows: graves for those that are gone, a new version for those that were not carried."""
