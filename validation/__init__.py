"""Compares any two cell stores, and never calls equal what it did not compare."""

from tripstore.engines.validation.errors import ValidationError

__all__ = ["ValidationError"]
