"""Key lists: every difference of a job, exact after a kill anywhere, and never without saying so a part of them."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from tripstore.engines.validation.diff import keylist
from tripstore.engines.validation.diff.differences import CellClass, Difference
from tripstore.engines.validation.diff.keylist import KeyList, KeyListElsewhere, Written, read_key_list

PARTS = 3


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.jsonl"


def made(path: Path) -> tuple[KeyList, dict[int, Written], list[UUID]]:
    """Three parts with a difference each, done; what is saved of them, and the keys."""
    keys, saved = [uuid4() for _ in range(PARTS)], dict[int, Written]()
    key_list = KeyList(path, "diff-1", "postgres")
    for part, key in enumerate(keys):
        saved[part] = key_list.lines(part, 1, Written()).append([found(key)])
    return key_list, saved, keys


def found(key: UUID) -> Difference:
    return Difference(CellClass.MISSING, key, "BASE", 1)


def listed(path: Path) -> list[UUID]:
    return [each.row_key for each in read_key_list(path)]


def test_the_list_is_what_all_parts_found(path: Path) -> None:
    key_list, saved, keys = made(path)

    key_list.finish(saved)

    assert listed(path) == keys
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_lines_that_were_never_saved_are_not_in_it(path: Path) -> None:
    """I11"""
    key_list, saved, keys = made(path)
    key_list.lines(1, 2, saved[1]).append([found(uuid4())])

    key_list.finish(saved)

    assert listed(path) == keys


@pytest.mark.parametrize("removed", range(PARTS + 1))
def test_a_kill_in_the_midst_of_cleaning_up_takes_nothing_from_the_list(
    path: Path, monkeypatch: pytest.MonkeyPatch, removed: int
) -> None:
    """I11"""
    key_list, saved, keys = made(path)

    def remove(folder: Path, **_habits: object) -> None:
        if folder.exists():
            for file in sorted(folder.iterdir())[:removed]:
                file.unlink()
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("tripstore.engines.validation.diff.keylist.shutil.rmtree", remove)
        with pytest.raises(KeyboardInterrupt):
            key_list.finish(saved)

    key_list.finish(saved)

    assert listed(path) == keys
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_a_finished_list_is_left_alone(path: Path) -> None:
    key_list, saved, keys = made(path)
    key_list.finish(saved)

    key_list.finish(saved)
    key_list.check(saved)

    assert listed(path) == keys


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_part_that_another_machine_has_is_named(path: Path, is_cut: bool) -> None:
    """I12: a list that lacks a part would say that nothing of it differs."""
    key_list, saved, _keys = made(path)
    file = path.with_name(f"{path.name}.diff-1") / saved[1].file
    if is_cut:
        os.truncate(file, saved[1].bytes - 1)
    else:
        file.unlink()

    for verb in (key_list.check, key_list.finish):
        with pytest.raises(KeyListElsewhere, match="part 1 "):
            verb(saved)
    with pytest.raises(KeyListElsewhere, match="part 1 "):
        key_list.lines(1, 5, saved[1])
    assert not path.exists()


def test_another_machine_without_any_of_it_is_told(path: Path) -> None:
    _list, saved, _keys = made(path)
    elsewhere = path.parent / "elsewhere"
    elsewhere.mkdir()

    with pytest.raises(KeyListElsewhere, match="part 0 "):
        KeyList(elsewhere / path.name, "diff-1", "postgres").finish(saved)


def test_a_long_part_is_copied_to_its_last_byte(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keylist, "BYTES_PER_COPY", 7)
    key_list, saved, keys = made(path)

    key_list.finish(saved)

    assert listed(path) == keys
