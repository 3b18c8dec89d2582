"""`Trial`: one call of a query that is under experiment, as a read that the shadow can ask of either side again."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from schemaless_core.calls.using import Using
from schemaless_core.store import CellStore
from tripstore.engines.validation.experiment.answers import QueryAnswer
from tripstore.engines.validation.reads import EXPERIMENT, Failed, Incomparable, Read

#: The operation of all of them.
OPERATION = "experiment"


@dataclass(frozen=True, slots=True)
class TrialSide:
    """The old query or the new one, with the arguments of one call."""

    answer: Callable[[], QueryAnswer | Failed]

    def as_store(self) -> CellStore:
        """For the shadow, which hands it back to the trial and asks nothing of it itself."""
        return cast(CellStore, self)


@dataclass(frozen=True, slots=True)
class Trial(Read):
    """`is_lagging`: whether one side may read what the other has not got yet. `is_late`: its service says it may."""

    is_lagging: bool = False
    is_late: bool = False

    @property
    def name(self) -> str:
        return f"{EXPERIMENT}{self.arguments[OPERATION]}"

    @property
    def circuit(self) -> str:
        return self.name

    @property
    def waits_for_mirror(self) -> bool:
        return self.is_lagging

    @property
    def may_lag(self) -> bool:
        """Both sides read one store, else: a candidate that was late gave its caller what was no longer true."""
        return self.is_lagging or self.is_late

    def ask(
        self,
        store: CellStore,
        using: Using,
        incomparable: Incomparable = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> Any:
        """What the side answers. It has a deadline of its own."""
        side: Any = store
        assert isinstance(side, TrialSide)
        return side.answer()


def trial_of(experiment: str, epoch: int, *, is_lagging: bool = False, is_late: bool = False) -> Trial:
    return Trial(OPERATION, {OPERATION: experiment}, epoch=epoch, is_lagging=is_lagging, is_late=is_late)
