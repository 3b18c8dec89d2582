"""Where the suite has its files: in memory where all that bounds it leaves room."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from tests import places
from tests.places import are_in_memory, choose_place


@pytest.fixture(autouse=True)
def _undecided(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", "/tmp")
    monkeypatch.setattr(places, "MEMORY", tmp_path)


def test_with_room_they_are_in_memory_for_processes_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(places, "ENOUGH_GIGABYTES", 0)

    said = choose_place()

    assert "in memory" in said
    assert (tempfile.gettempdir(), os.environ["TMPDIR"]) == (str(tmp_path), str(tmp_path))
    assert are_in_memory()


@pytest.mark.parametrize("bound", ["_available_bytes", "_container_bytes"])
def test_one_bound_that_is_too_low_leaves_them_on_the_disk(monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    monkeypatch.setattr(places, "ENOUGH_GIGABYTES", 0.001)
    monkeypatch.setattr(places, bound, lambda: 1000.0)

    said = choose_place()

    assert "on the disk" in said
    assert not are_in_memory()
    assert "TMPDIR" not in os.environ


def test_a_memory_that_there_is_not_leaves_them_on_the_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(places, "MEMORY", tmp_path / "absent")

    assert "on the disk" in choose_place()


def test_a_user_who_sets_a_folder_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/var/tmp")

    assert "/var/tmp" in choose_place()
