"""The command that repeats a read is one that the command line understands."""

from __future__ import annotations

import shlex
from decimal import Decimal
from typing import Any
from uuid import UUID

import click
import pytest

from tripstore.cli.root import root
from tripstore.engines.validation.reads import Read
from tripstore.facade.repro import command

ROW = UUID(int=7)
QUERY: dict[str, Any] = {
    "index": "driver_partner_index",
    "shard_value": ROW,
    "where": [("city", "=", "it's; rm"), ("fare", "between", [Decimal("1.10"), 2]), ("seats", "in", [1, 2])],
    "fields": None,
    "columns": ["BASE", "STATUS"],
    "order_by": "fare",
    "descending": True,
    "limit": 10,
    "cursor": "abc=",
    "consistency": "verified",
}


@pytest.mark.parametrize(
    ("read", "words"),
    [
        (
            Read("get_cell", {"row_key": ROW, "column_name": "BASE", "ref_key": -3}),
            ["cell", "get", str(ROW), "BASE", "-3"],
        ),
        (Read("get_cell_latest", {"row_key": ROW, "column_name": "A B"}), ["cell", "get", str(ROW), "A B"]),
        (Read("get_row", {"row_key": ROW, "columns": None}), ["cell", "row", str(ROW)]),
        (Read("get_row", {"row_key": ROW, "columns": ["BASE"]}), ["cell", "row", str(ROW), "BASE"]),
        (
            Read("get_history", {"row_key": ROW, "column_name": "BASE", "before": 0, "limit": 5}),
            ["cell", "history", str(ROW), "BASE", "--before", "0", "--limit", "5"],
        ),
        (
            Read("query_index", QUERY),
            ["index", "query", "driver_partner_index", str(ROW), "--where", "city = it's; rm", "--where"]
            + ["fare between 1.10 and 2", "--where", "seats in 1,2", "--order-by", "fare", "--desc", "--columns"]
            + ["BASE,STATUS", "--cursor", "abc=", "--verified", "--limit", "10"],
        ),
    ],
)  # fmt: skip
def test_a_read_is_repeated_by_one_line(read: Read, words: list[str]) -> None:
    line = command(read, "the page")

    assert shlex.split(line) == ["tripstore", *words]
    assert understood(words)


def understood(words: list[str]) -> bool:
    """Whether the command line takes these words."""
    context = click.Context(root)
    found = root.get_command(context, words[0])
    assert isinstance(found, click.Group)
    found.commands[words[1]].make_context(words[1], words[2:], parent=context)
    return True


def test_what_has_no_command_is_told_as_a_call() -> None:
    read = Read("scan_rows", {"shard": 3, "after": None, "limit": 10})

    assert command(read, "the page") == "scan_rows(shard=3, limit=10)"


@pytest.mark.parametrize(
    ("operation", "entry", "words"),
    [
        ("get_cells", f"A @ B@-3 of {ROW}", ["cell", "get", str(ROW), "A @ B", "-3"]),
        ("get_cells_latest", f"BASE@3 of {ROW}", ["cell", "get", str(ROW), "BASE"]),
        ("scan_rows", f"row {ROW}", ["cell", "row", str(ROW)]),
        ("legacy_ids", f"row {ROW}", ["cell", "row", str(ROW)]),
        ("resolve_ids", "legacy id -7", ["index", "query", "legacy_ids", "-7"]),
    ],
)
def test_of_what_asks_for_much_the_entry_that_differed_is_asked_for(
    operation: str, entry: str, words: list[str]
) -> None:
    line = command(Read(operation, {}), entry)

    assert shlex.split(line) == ["tripstore", *words]
    assert understood(words)
