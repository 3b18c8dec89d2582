"""`SchemaStep`: one thing that `schema apply` does to the company's database, in order, safe on a busy table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from schemaless_core.failpoints import reach

#: Told after each piece of a long step: what is done so far, and of how many (None: unknown).
Progress = Callable[[int, int | None], None]


class SchemaStep(Protocol):
    """Looks at the database to know whether it is done, so that an interrupted run goes on where it stopped."""

    @property
    def title(self) -> str:
        """What it does, in a few words, with the names of tables: unique among all steps."""
        ...

    def is_done(self, connection: Connection) -> bool: ...

    def statements(self) -> Sequence[str]:
        """What it would run, for the plan; long steps say one statement with what it repeats."""
        ...

    def apply(self, connection: Connection, progress: Progress) -> None:
        """Do it. Takes no lock for longer than `lock_timeout`; may be killed anywhere and repeated."""
        ...

    def revert(self, connection: Connection) -> None: ...


@dataclass(frozen=True, slots=True)
class AppliedStep:
    """What became of one step."""

    step: SchemaStep
    was_done: bool


def apply_all(
    steps: Sequence[SchemaStep], connection: Connection, progress: Callable[[SchemaStep], Progress]
) -> Iterator[AppliedStep]:
    """Do what is not done yet, in order."""
    for step in steps:
        was_done = step.is_done(connection)
        if not was_done:
            step.apply(connection, progress(step))
            reach("legacy.step_applied")
        yield AppliedStep(step, was_done)
