"""`@trigger`: what it accepts, what it refuses with a way out, and how a module's triggers are found."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from schemaless_core import InvalidCell, InvalidRequest, MemoryStore
from schemaless_core.triggers import trigger
from schemaless_core.triggers.registry import load_triggers

MODULE = """
from schemaless_core.triggers import trigger

@trigger(column="BASE", start="now")
def first(row_key, store): ...

@trigger(column="STATUS", start="beginning")
def second(cell): ...

app = [second]
empty = []
mixed = [first, "second"]
number = 7
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """Writes a module of a name that no other test uses, and lets it be imported."""
    monkeypatch.syspath_prepend(tmp_path)
    made: list[str] = []

    def write(text: str = MODULE) -> str:
        name = f"billing_{uuid4().hex}"
        (tmp_path / f"{name}.py").write_text(text)
        made.append(name)
        return name

    yield write
    for name in made:
        sys.modules.pop(name, None)


def test_a_trigger_is_called_as_its_function() -> None:
    @trigger(column="BASE", start="now")
    def bill_rider(row_key: UUID, store: object) -> str:
        return f"{row_key} {store}"

    row_key, store = uuid4(), MemoryStore()

    assert bill_rider(row_key, store) == f"{row_key} {store}"
    assert (bill_rider.name, bill_rider.column, bill_rider.start) == ("bill_rider", "BASE", "now")
    assert bill_rider.parameters == ("row_key", "store")


def test_the_name_of_the_group_may_be_another() -> None:
    @trigger(column="BASE", name="billing-2026.v2")
    def bill_rider(row_key: UUID) -> None: ...

    assert (bill_rider.name, bill_rider.start) == ("billing-2026.v2", None)


@pytest.mark.parametrize("start", ["now", "beginning", None, datetime(2026, 3, 1, tzinfo=UTC)])
def test_a_start_is_now_the_beginning_or_a_time_with_its_zone(start: Any) -> None:
    assert trigger(column="BASE", start=start)(lambda_like).start == start


def lambda_like(row_key: UUID) -> None: ...


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"start": "tomorrow"}, "no start"),
        ({"start": datetime(2026, 3, 1)}, "time zone"),  # noqa: DTZ001  # that it has none is the point
        ({"batch": 0}, "batch"),
        ({"batch": True}, "batch"),
        ({"batch": 10_001}, "batch"),
        ({"park_scope": "column"}, "park scope"),
        ({"batch": 2, "transactional": True}, "one cell at a time"),
        ({"name": "two words"}, "no name of a group"),
        ({"name": "index:trips:v1"}, "no name of a group"),
        ({"batch": 2}, "no parameter cells"),
    ],
)
def test_what_no_trigger_can_be_is_refused_with_a_way_out(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidRequest, match=complaint) as refused:
        trigger(column="BASE", **options)(lambda_like)

    assert refused.value.hint


def test_a_column_that_no_cell_can_have_is_refused() -> None:
    with pytest.raises(InvalidCell):
        trigger(column="")


def test_a_parameter_that_cannot_be_filled_is_refused_and_those_known_are_named() -> None:
    with pytest.raises(InvalidRequest, match="parameter rowkey") as refused:

        @trigger(column="BASE")
        def bill_rider(rowkey: UUID) -> None: ...

    assert "row_key, store, cell, cells" in (refused.value.hint or "")


def test_one_cell_and_several_are_too_many() -> None:
    with pytest.raises(InvalidRequest, match="one cell and several"):

        @trigger(column="BASE", batch=5)
        def bill_riders(cell: object, cells: list[object]) -> None: ...


def test_a_module_gives_all_its_triggers_or_those_named(module: Callable[..., str]) -> None:
    name = module()

    assert [found.name for found in load_triggers(name)] == ["first", "second"]
    assert [found.name for found in load_triggers(f"{name}:first")] == ["first"]
    assert [found.name for found in load_triggers(f"{name}:app")] == ["second"]


@pytest.mark.parametrize(
    ("attribute", "complaint", "way_out"),
    [
        ("third", "has no third", "first, second"),
        ("empty", "has no triggers", "@trigger"),
        ("mixed", "holds 'second'", "@trigger"),
        ("number", "no trigger and no list", "@trigger"),
    ],
)
def test_what_is_no_trigger_is_named(module: Callable[..., str], attribute: str, complaint: str, way_out: str) -> None:
    with pytest.raises(InvalidRequest, match=complaint) as refused:
        load_triggers(f"{module()}:{attribute}")

    assert way_out in (refused.value.hint or "")


def test_a_module_that_is_not_there_is_named() -> None:
    with pytest.raises(InvalidRequest, match="no module 'no_such_billing'"):
        load_triggers("no_such_billing:app")


def test_a_module_without_triggers_is_refused(module: Callable[..., str]) -> None:
    with pytest.raises(InvalidRequest, match="has no triggers"):
        load_triggers(module("x = 1\n"))


def test_two_triggers_of_one_name_are_refused(module: Callable[..., str]) -> None:
    again = MODULE.replace('column="STATUS", start="beginning"', 'column="STATUS", name="first"')

    with pytest.raises(InvalidRequest, match="Two triggers are called first"):
        load_triggers(module(again))
