"""What an earlier version of ours made and what records the same: no change was missed by it.

`schema apply` makes it anew. Without this, an upgrade would look like capture that was broken, and the past would have
to be copied again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cached_property

from tripstore.backends.postgres.capture.functions.changes import FORMER_SAID, JUMP, KEEP_FACTS, KEEP_MOVED
from tripstore.backends.postgres.capture.functions.function import Function
from tripstore.backends.postgres.capture.functions.gate import GATE, SAYS, WRITERS_GATE
from tripstore.backends.postgres.capture.functions.moving import MOVED
from tripstore.backends.postgres.layout.layout import Layout, MappedColumn
from tripstore.backends.postgres.sqlstates import COLUMN_GONE
from tripstore.backends.postgres.wire.connections import SIGHT

#: The advice of a refusal.
_HINT = re.compile(r", HINT = E?'(?:[^']|'')*'(?=;\n)")
#: The block that names a lost column: without it plpgsql refuses the row all the same.
_LOST_COLUMNS = re.compile(
    r"  BEGIN\n    IF [^\n]* OPERATOR\(pg_catalog\.<\) 0 THEN\n      NULL;\n    END IF;\n(.*?)"
    rf"  EXCEPTION WHEN undefined_column THEN\n    RAISE EXCEPTION [^\n]* ERRCODE = '{COLUMN_GONE}';\n  END;\n",
    re.DOTALL,
)
#: Which facts went, said by themselves where deletions are ignored: no change is missed without it.
_KEPT_FACTS = re.compile(
    r"  (?:EXECUTE E?')?" + re.escape(KEEP_FACTS) + r"\n[^\n]*, ~ [^;]* ON CONFLICT DO NOTHING'?;\n"
)
#: It refuses, and records nothing.
_JUMP = re.compile(rf"  {re.escape(JUMP)}\n(?:[^\n]*\n){{5}}")
#: Other keys of a child were refused.
_MOVED = re.compile(rf" +{re.escape(MOVED)}\n(?:[^\n]*\n){{3}}")
#: Where a row begins that moves to another partition: said by a setting, which any session can set, or in `kept`.
_KEEP_MOVED = re.compile(rf"    {re.escape(KEEP_MOVED)}\n(?:[^\n]*\n){{3}}")
_SAY_MOVED = re.compile(r"    PERFORM set_config\('tripstore\.moved', [^\n]*\n")
_MOVED_FLOOR = re.compile(
    r"(GREATEST\(|, )(\(SELECT t\.ref_key FROM tripstore\.)tomb( [^()]*\))(, \2kept\3)?, "
    r"\(SELECT m\[2\][^()]*string_to_array\(current_setting\('tripstore\.moved', true\), ' '\)[^()]*\)"
)


def records_alike(function: Function, body: str, settings: Mapping[str, str]) -> bool:
    """Whether a function with this text records what ours does. Settings have small letters."""
    wanted = {name.lower(): value for name, value in function.settings.items()}
    # What a policy would hide is complained of by itself.
    without_sight = {name: value for name, value in wanted.items() if name not in SIGHT}
    texts = [text for text in (function.body, function.former_body) if text is not None]
    return settings in (wanted, without_sight) and _essence(body) in map(_essence, texts)


class _InWrittenOrder(MappedColumn):
    """A column whose values are captured in the order of the layout's lines."""

    @cached_property
    def captured(self) -> tuple[str, ...]:
        names = [field.column for field in self.fields] + ([self.extra] if self.extra else [])
        return tuple(dict.fromkeys(names))


def in_written_order(layout: Layout) -> Layout:
    """What earlier versions made triggers and functions of: now the order of the lines decides nothing."""
    columns = {
        name: _InWrittenOrder(**{each.name: getattr(column, each.name) for each in fields(column)})
        for name, column in layout.columns.items()
    }
    return replace(layout, columns=columns)


def _essence(body: str) -> str:
    for now, before in FORMER_SAID.items():
        body = body.replace(now, before)
    for gate in (GATE, WRITERS_GATE):
        body = body.replace(gate, SAYS)
    body = _MOVED_FLOOR.sub(r"\1\2tomb\3, \2kept\3", _KEEP_MOVED.sub("", _SAY_MOVED.sub("", body)))
    body = _MOVED.sub("", body)
    return _JUMP.sub("", _KEPT_FACTS.sub("", _LOST_COLUMNS.sub(r"\1", _HINT.sub("", body))))
