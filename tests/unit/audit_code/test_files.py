"""Which files are looked at."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.audit_code.services import TABLES, audit, write
from tripstore.audit import LegacyTables, audit_code


def test_files_that_cannot_be_read_are_listed_and_the_others_are_looked_at(tmp_path: Path) -> None:
    write(tmp_path, {"good.py": "run('DELETE FROM trips')", "bad.py": "def (:\n", "old.py": "print 'trips'\n"})
    (tmp_path / "bytes.py").write_bytes(b"# -*- coding: utf-8 -*-\nx = '\xff trips'\n")
    (tmp_path / "null.py").write_bytes(b"x = 1\0\n")
    (tmp_path / "cookie.py").write_bytes(b"# -*- coding: klingon -*-\n")
    (tmp_path / "deep.py").write_text("x = 'trips' + " + " + ".join(["'a'"] * 3000) + "\n")
    (tmp_path / "gone.py").symlink_to(tmp_path / "nowhere.py")

    result = audit_code(tmp_path, LegacyTables.parse(TABLES))

    unread = {remark.file: remark for remark in result.unread}
    assert set(unread) == {"bad.py", "old.py", "bytes.py", "null.py", "cookie.py", "deep.py", "gone.py"}
    assert (unread["bad.py"].line, unread["old.py"].line) == (1, 1)
    assert all(remark.reason for remark in result.unread)
    assert not result.is_complete
    assert [f.file for f in result.uses] == ["good.py"]


@pytest.mark.parametrize(
    ("data", "name"),
    [
        ("# -*- coding: latin-1 -*-\nx = 'SELECT é FROM trips'\n".encode("latin-1"), "a.py"),
        ("\ufeffx = 'SELECT é FROM trips'\n".encode(), "a.py"),
        ("x = 1\r\ny = 'SELECT é FROM trips'\r\n".encode(), "a.py"),
        ("\n\n-- é\nSELECT é FROM trips".encode("latin-1"), "a.sql"),
        ("\nSELECT é FROM trips".encode("utf-16"), "a.sql"),
        ("\nSELECT é FROM trips".encode("utf-8-sig"), "a.sql"),
    ],
)
def test_encodings_are_respected(tmp_path: Path, data: bytes, name: str) -> None:
    (tmp_path / name).write_bytes(data)

    [finding] = audit_code(tmp_path, LegacyTables.parse(TABLES)).uses

    assert (
        finding.line
        == data.decode("latin-1").replace("\0", "").count("\n", 0, data.replace(b"\0", b"").find(b"FROM")) + 1
    )


def test_what_others_wrote_is_skipped_and_links_are_followed_once(tmp_path: Path) -> None:
    use = "run('DELETE FROM trips')"
    skipped = [".venv/a.py", "venv/lib/a.py", "node_modules/a.py", ".git/a.py", "__pycache__/a.py", "notes.txt"]
    write(tmp_path, dict.fromkeys([*(f"code/{name}" for name in skipped), "code/a.py", "shared/b.py"], use))
    write(tmp_path, {"code/venv/pyvenv.cfg": ""})
    code = tmp_path / "code"
    (code / "loop").symlink_to(code)
    (code / "up").symlink_to(tmp_path)
    (code / "again.py").symlink_to(code / "a.py")
    (code / "one").symlink_to(tmp_path / "shared")
    (code / "two").symlink_to(tmp_path / "shared")
    os.mkfifo(code / "pipe.py")

    result = audit_code(code, LegacyTables.parse(TABLES))

    assert [f.file for f in result.uses] == ["a.py", "one/b.py"]
    assert result.is_complete


@pytest.mark.parametrize(
    ("exclude", "left"),
    [
        ((), ["a/c/x.py", "a/x.py", "b/y.sql"]),
        (("c",), ["a/x.py", "b/y.sql"]),
        (("a/*",), ["b/y.sql"]),
        (("*.sql", "a/c/"), ["a/x.py"]),
        (("x.py",), ["b/y.sql"]),
    ],
)
def test_excluded_files_and_folders_are_not_looked_at(
    tmp_path: Path, exclude: tuple[str, ...], left: list[str]
) -> None:
    files = {
        "a/c/x.py": "run('DELETE FROM trips')",
        "a/x.py": "run('DELETE FROM trips')",
        "b/y.sql": "DELETE FROM trips",
    }

    assert [f.file for f in audit(tmp_path, files, *exclude).uses] == left


def test_a_single_file_can_be_looked_at(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": "run('DELETE FROM trips')", "b.py": "run('DELETE FROM trips')"})

    result = audit_code(tmp_path / "a.py", LegacyTables.parse(TABLES))

    assert [f.file for f in result.uses] == ["a.py"]


def test_nothing_of_the_audited_code_runs(tmp_path: Path) -> None:
    audit(tmp_path, {"a.py": f"open({str(tmp_path / 'ran')!r}, 'w'); run('DELETE FROM trips')"})

    assert not (tmp_path / "ran").exists()


def test_a_file_without_suffix_that_cannot_be_read_may_be_code(tmp_path: Path) -> None:
    write(tmp_path, {"run": "#!/usr/bin/env python3\nrun('DELETE FROM trips')\n", "notes": "trips\n"})
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")

    result = audit_code(tmp_path, LegacyTables.parse(TABLES))

    assert [(remark.file, remark.reason) for remark in result.unread] == [("gone", "No such file or directory")]
    assert not result.is_complete
    assert [f.file for f in result.uses] == ["run"]
