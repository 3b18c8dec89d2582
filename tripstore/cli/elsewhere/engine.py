"""`TaskEngine`: runs tasks on hosts of its own. One of them is in a file of its own; another one would be, too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec


class TaskOrder(msgspec.Struct, frozen=True):
    """What a task is to do. It travels as JSON does, and through the engine: no secret, and no address of a store."""

    #: Of this library, at the submitter.
    version: str
    #: "" where the subject is no job.
    kind: str
    #: The job, or the index version's group.
    subject: str
    #: As long as this one tells of itself, the work is wanted.
    submitter: str
    #: After so many a task ends, and lets another one have its place.
    parts_max: int = 1
    #: That hold for the tasks of this command, instead of those in the job's spec.
    limits: dict[str, int | float] = {}


class TaskOutcome(msgspec.Struct, frozen=True):
    """What became of a task. What it did is its own word; the job's counts are in the control database."""

    #: As the job knew it. "": it did not begin.
    worker: str = ""
    host: str = ""
    parts: int = 0
    counts: dict[str, int] = {}
    #: Why it could not go on; "": it could.
    reason: str = ""
    hint: str = ""
    #: Whether it found no word of its submitter, and did nothing.
    is_unwanted: bool = False
    #: Whether the engine lost it, with its process most likely: what it held is another task's when its lease is over.
    is_lost: bool = False

    @property
    def has_failed(self) -> bool:
        return bool(self.reason) and not self.is_lost


class HostStanding(msgspec.Struct, frozen=True):
    """What a process of the engine says of itself, before anything is begun."""

    host: str = ""
    version: str = ""
    #: "": it has no configuration that can be read.
    datastore: str = ""
    config: str = ""
    #: Why it could do no work; "": nothing is known to be in the way.
    reason: str = ""
    hint: str = ""


class SubmittedTask(Protocol):
    """A task that was handed over."""

    def look(self) -> TaskOutcome | None:
        """What became of it; None: it waits, or runs. Raises nothing: an engine that is gone has lost it."""
        ...

    def forget(self) -> None:
        """Its outcome is of no use any more; where it has not begun, it need not."""
        ...


class TaskEngine(Protocol):
    """May lose a task, repeat it, or run it twice at once. Called by one thread."""

    @property
    def name(self) -> str:
        """As the operator wrote it."""
        ...

    def hosts(self) -> Mapping[str, HostStanding | None]:
        """What each of its processes says of itself; None: it is at other work, or does not answer."""
        ...

    def count(self) -> int:
        """How many processes it has now."""
        ...

    def submit(self, order: TaskOrder) -> SubmittedTask:
        """Have a task done by one of its processes, once or more often. `EngineUnavailable` where it is gone."""
        ...

    @property
    def is_lost(self) -> bool:
        """Whether it does not answer any more."""
        ...

    def close(self) -> None:
        """Let go of it. Tasks that run go on until they hear that they are not wanted."""
        ...
