"""The steps of a hand-over are made like all others."""

from __future__ import annotations

from schemaless_core.steps import Step, Steps, run

__all__ = ["Step", "Steps", "run"]
