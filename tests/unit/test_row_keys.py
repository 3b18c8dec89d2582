"""Files of row keys as people, diffs and reports write them; what is none is named with its line."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from schemaless_core.errors import InvalidRequest
from tripstore.cli.backfill.row_keys import read_row_keys
from tripstore.migration.backfill import portions

A, B, C = (UUID(int=number) for number in (1, 2, 3))


@pytest.mark.parametrize(
    "text",
    [
        f"{A}\n\n  {B}  \n{A}\n{C}\n",
        f'{{"row_key": "{A}", "kind": "missing"}}\n{{"row_key": "{B}"}}\n{{"row_key": "{C}"}}\n',
        f'{{"found": [{{"row_key": "{A}"}}, {{"at": {{"row_key": "{B}"}}}}], "x": ["{C}", {{"row_key": "{C}"}}]}}',
        f'[{{"row_key": "{A}"}}, {{"row_key": null}}]\n{B}\n{C}',
    ],
)
def test_each_row_key_is_read_once_in_order(tmp_path: Path, text: str) -> None:
    file = tmp_path / "keys"
    file.write_text(text)

    assert read_row_keys(file) == [A, B, C]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "names no row key"),
        ('{"kind": "missing"}\n', "names no row key"),
        (f"{A}\ntrip 4711\n", "Line 2 of"),
        (f'{A}\n{{"row_key": 5}}\n', "Line 2 of"),
        ("{broken\n", "is no JSON"),
    ],
)
def test_what_is_no_row_key_is_named(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "keys"
    file.write_text(text)

    with pytest.raises(InvalidRequest, match=complaint) as raised:
        read_row_keys(file)
    assert raised.value.hint


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_bytes(f"{A}\n".encode("utf-16"))

    with pytest.raises(InvalidRequest, match="is no text in UTF-8") as raised:
        read_row_keys(file)
    assert raised.value.hint


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (f'{{"differences": [{{"row_key": "{A}"}}], "is_complete": false}}', "lists a part"),
        (f'{{"limits": {{"listed_max": 1}}, "mismatches": [], "quarantine": [{{"row_key": "{A}"}}]}}', "cut after 1"),
    ],
)
def test_a_list_that_was_cut_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    """It would copy a part and look like all of it."""
    file = tmp_path / "keys"
    file.write_text(text)

    with pytest.raises(InvalidRequest, match=complaint) as raised:
        read_row_keys(file)
    assert raised.value.hint


@pytest.mark.parametrize(
    "text",
    [
        f'{{"differences": [{{"row_key": "{A}"}}], "is_complete": true}}',
        f'{{"limits": {{"listed_max": 2}}, "mismatches": [], "quarantine": [{{"row_key": "{A}"}}]}}',
    ],
)
def test_a_list_that_is_whole_is_read(tmp_path: Path, text: str) -> None:
    file = tmp_path / "keys"
    file.write_text(text)

    assert read_row_keys(file) == [A]


def test_a_file_of_too_many_is_not_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portions, "KEYS_MAX", 2)
    file = tmp_path / "keys"
    file.write_text(f"{A}\n{B}\n{B}\n")
    assert read_row_keys(file) == [A, B]
    file.write_text(f"{A}\n{B}\n{C}\nno key at all\n")

    with pytest.raises(InvalidRequest, match="no more than 2"):
        read_row_keys(file)
