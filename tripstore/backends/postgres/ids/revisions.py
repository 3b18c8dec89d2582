"""`Revision`: a step from ids to UUIDs as a file for the company's own alembic, reviewed and kept in its repository.

The same layout and the same revision before them give the same files, byte by byte.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import md5
from textwrap import wrap

from tripstore.backends.postgres.ddl.ddl import PATIENT
from tripstore.backends.postgres.ddl.steps import SchemaStep
from tripstore.backends.postgres.ids.key_backfill import FillOldRows
from tripstore.backends.postgres.ids.key_columns import KeyColumn
from tripstore.backends.postgres.ids.key_indexes import UniqueIndex
from tripstore.backends.postgres.ids.steps import key_columns, steps_of
from tripstore.backends.postgres.layout.layout import Layout, TableName

_TEXT = '''\
"""{title}.

{statements}

{manner}
Written by `tripstore ids revisions`. What is done is passed over: killed anywhere, it is run again.
"""

from __future__ import annotations

from alembic import op

from tripstore.backends.postgres.ids.id_step import IdStep

revision = {id}
down_revision = {after}
branch_labels = None
depends_on = None

STEP = IdStep(
{arguments}
)


def upgrade() -> None:
    with op.get_context().autocommit_block():
        STEP.apply(op.get_bind())


def downgrade() -> None:
    with op.get_context().autocommit_block():
        STEP.revert(op.get_bind())
'''

_UNDER_LOCK = f"""\
No lock is waited for longer than {PATIENT.lock_timeout_seconds} s; then everybody passes, and it is tried again.
The sessions that are still in the way are named."""
_IN_BATCHES = "In transactions of a tenth of a second along the primary key; rows that a session has locked come last."
_CONCURRENTLY = "No statement is blocked. Of a table with partitions one after the other, then they are attached."

_WIDTH = 110


@dataclass(frozen=True, slots=True)
class Revision:
    """One file."""

    id: str
    after: str
    title: str
    file: str
    text: str


def id_revisions(layout: Layout, after: str) -> list[Revision]:
    """All steps, in their order, from the revision `after` on. If that is a number, they count on."""
    made: list[Revision] = []
    for column in key_columns(layout):
        for step in steps_of(column):
            made.append(_revision(column, step, made[-1].id if made else after))
    return made


def _revision(column: KeyColumn, step: SchemaStep, after: str) -> Revision:
    number = _next(after, step.title)
    text = _TEXT.format(
        title=_in_docstring(step.title),
        statements=_in_docstring("\n".join(_lines(step.statements()))),
        manner=_manner(step),
        id=json.dumps(number),
        after=json.dumps(after),
        arguments="\n".join(f"    {name}={value}," for name, value in _arguments(column, step)),
    )
    return Revision(number, after, step.title, f"{number}_{_slug(column.table)}_{_snake(type(step).__name__)}.py", text)


def _next(after: str, title: str) -> str:
    if after.isascii() and after.isdecimal():
        return str(int(after) + 1).zfill(len(after))
    return md5(f"{after}/{title}".encode(), usedforsecurity=False).hexdigest()[:12]


def _arguments(column: KeyColumn, step: SchemaStep) -> Iterator[tuple[str, str]]:
    """What makes an `IdStep`, as Python."""
    source = column.source
    yield "kind", json.dumps(type(step).__name__)
    yield "table", _pair(column.table)
    yield "uuid", _text(column.uuid)
    yield "id", _text(column.id)
    if column.number is not None:
        yield "number", _text(column.number)
    yield "parent", _pair(source.table)
    yield "parent_id", _text(source.id)
    yield "parent_uuid", _text(source.uuid)


def _pair(table: TableName) -> str:
    return f"({_text(table.schema)}, {_text(table.name)})"


def _text(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def _lines(statements: Sequence[str]) -> Iterator[str]:
    for statement in statements:
        first, *more = wrap(statement + ";", _WIDTH, break_long_words=False, break_on_hyphens=False)
        yield f"    {first}"
        yield from (f"      {line}" for line in more)


def _in_docstring(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')


def _manner(step: SchemaStep) -> str:
    match step:
        case FillOldRows():
            return _IN_BATCHES
        case UniqueIndex():
            return _CONCURRENTLY
    return _UNDER_LOCK


def _slug(table: TableName) -> str:
    return re.sub(r"\W+", "_", str(table).lower()).strip("_")


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
