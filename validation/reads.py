"""`Read`: one read of a cell store, as it was asked: another store may be asked the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import msgspec

from schemaless_core.calls.using import Using
from schemaless_core.errors import SchemalessError
from schemaless_core.store import CellStore

#: What a store raises that says nothing of what it holds.
Incomparable = tuple[type[BaseException], ...]

#: What the shadow is offered: reads of a store, and each index is an operation class of its own. Not checksums: a shard
#: that is written to has another one at each look; the diff compares them, and asks again for what moved.
COMPARABLE = frozenset(
    {
        "get_cell",
        "get_cell_latest",
        "get_cells",
        "get_cells_latest",
        "get_row",
        "get_history",
        "scan_rows",
        "query_index",
        "resolve_ids",
        "legacy_ids",
    }
)

#: Before the name of an operation whose store was held against itself.
NOISE = "noise:"
#: Before the name of an experiment, which is compared as a read is.
EXPERIMENT = "experiment:"

#: Stores give up a little before their deadline.
NEARLY = 0.9


def is_comparable(operation: str) -> bool:
    """Whether reads of this operation class can be compared at all."""
    return operation.partition(":")[0] in COMPARABLE


@dataclass(frozen=True, slots=True)
class Failed:
    """A store gave no answer."""

    error: str
    message: str
    #: Whether the deadline had passed by then.
    is_late: bool = False
    #: Whether the store knows that it cannot know: its history was cut, say.
    is_incomparable: bool = False
    #: Whether it answered with bytes that are no JSON: whatever the other store has is not this.
    is_torn: bool = False
    #: Why it was not asked, as `verdicts.Reason` names it; empty: it was asked.
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Read:
    """Operation and arguments, by their names in the API."""

    operation: str
    arguments: Mapping[str, Any]
    #: The rows that it asks about, as far as the arguments tell.
    row_keys: tuple[UUID, ...] = field(default=())
    #: Whether a store is asked twice, to see what differs by itself.
    is_noise: bool = False
    #: Of the authority that was asked: what was compared before a hand-over says nothing of the next one.
    epoch: int = 0

    @property
    def name(self) -> str:
        """The operation class: each index is one of its own, and so is what measures the noise."""
        index = self.arguments.get("index")
        name = self.operation if index is None else f"{self.operation}:{index}"
        return f"{NOISE}{name}" if self.is_noise else name

    @property
    def circuit(self) -> str:
        """What fails together with it, and rests together: all reads of the stores."""
        return ""

    @property
    def waits_for_mirror(self) -> bool:
        """Whether one side may have what the other has not got yet."""
        return not self.is_noise

    @property
    def may_lag(self) -> bool:
        """Whether an answer that differed is excused when the other side gives the right one a moment later."""
        return True

    def ask(
        self,
        store: CellStore,
        using: Using,
        incomparable: Incomparable = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> Any:
        """The store's answer within the deadline of `using`, or `Failed`; never raises what a store raises."""
        begun = clock()
        try:
            return getattr(using(store), self.operation)(**self.arguments)
        except incomparable as error:
            return Failed(type(error).__name__, str(error), is_incomparable=True)
        except msgspec.MsgspecError as error:
            return Failed(type(error).__name__, str(error), is_torn=True)
        except SchemalessError as error:
            is_late = using.deadline is not None and clock() - begun >= using.deadline * NEARLY
            return Failed(type(error).__name__, str(error), is_late=is_late)
