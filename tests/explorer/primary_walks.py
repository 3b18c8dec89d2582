"""Walks of scenes around a promotion, with leases and without."""

from __future__ import annotations

from functools import cache

from schemaless_core.steps import Step
from tests.explorer.explorer import Found, explore
from tests.explorer.primaries import PrimaryScene
from tests.explorer.primary_model import PrimaryModel
from tests.explorer.world import Violation

#: More worlds than any scene has that is walked to its end.
ENOUGH = 1_000_000


def walked(made: PrimaryScene, *, limit: int = ENOUGH) -> Found:
    return explore(PrimaryModel(made), Violation, limit)


@cache
def walk(made: PrimaryScene) -> tuple[Found, frozenset[Step]]:
    """To its end, once for all tests; and the steps that were taken."""
    model = PrimaryModel(made)
    return explore(model, Violation, ENOUGH), frozenset(model.steps_taken())
