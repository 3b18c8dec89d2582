"""The engines, `backfill/` and `validation/` of the repository, under names that no application has."""
