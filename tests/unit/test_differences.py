"""What a difference says survives its line in a key list."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from tripstore.engines.validation.diff.differences import CellClass, Difference, NotCompared
from tripstore.engines.validation.diff.keylist import (
    InvalidKeyList,
    KeyList,
    Written,
    read_key_list,
    source_of,
    write_key_list,
)

ONE, TWO = (Difference(CellClass.MISSING, UUID(int=n), "BASE", n) for n in (1, 2))


def test_everything_that_a_difference_says_is_in_its_line(tmp_path: Path) -> None:
    written = [
        Difference(CellClass.DIFFERS, UUID(int=7), "NOTES", 3, 4, "ref_key"),
        Difference(CellClass.EXTRA, UUID(int=7), "NOTES", None, -4, "", True, "decoder"),
        Difference(NotCompared.UNREADABLE, UUID(int=7), "NÖTES", path="fare cannot stand in a body"),
    ]

    write_key_list(tmp_path / "keys.jsonl", written, "schemaless")

    assert list(read_key_list(tmp_path / "keys.jsonl")) == written
    assert source_of(tmp_path / "keys.jsonl") == "schemaless"


def test_a_holder_that_lost_its_part_leaves_nothing_behind(tmp_path: Path) -> None:
    """I11"""
    key_list = KeyList(tmp_path / "keys.jsonl", "diff-1", "schemaless")
    late = key_list.lines(0, 1, Written())
    saved = key_list.lines(0, 3, late.append([ONE])).append([])

    late.append([TWO])
    key_list.finish({0: saved})

    assert list(read_key_list(tmp_path / "keys.jsonl")) == [ONE]


@pytest.mark.parametrize("line", ["no JSON", "{}", '{"kind": "missing", "row_key": "x", "column": "BASE"}', "[1]"])
def test_a_line_that_is_no_difference_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "keys.jsonl").write_text(line + "\n")

    with pytest.raises(InvalidKeyList, match="Line 1 of"):
        list(read_key_list(tmp_path / "keys.jsonl"))


def test_a_list_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidKeyList, match="cannot be read"):
        list(read_key_list(tmp_path / "keys.jsonl"))
