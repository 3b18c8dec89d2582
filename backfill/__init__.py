"""Copies the past of any source into any cell store, exactly counted and as often as wanted."""

from tripstore.engines.backfill.errors import BackfillError

__all__ = ["BackfillError"]
