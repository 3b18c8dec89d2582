"""Triggers: functions that are called for the cells of a column, and the workers that call them."""

from schemaless_core.triggers.registry import Trigger, trigger

__all__ = ["Trigger", "trigger"]
