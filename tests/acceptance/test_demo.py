"""The demo on SQLite: the whole migration with real processes, some of them killed, and every promise kept."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from schemaless_core.process.private import OWNER_ONLY, private
from tests.acceptance.conftest import Ran, Shell
from tests.chaos.actors import wait_until
from tests.scale import SCALE
from tripstore.demo.command import _conclude, _left
from tripstore.demo.report import DemoReport, StorySums
from tripstore.local.dev import DevFolder
from tripstore.local.processes import birth

PLAYGROUND = "tripstore-playground"
#: Less than two minutes on a machine that has nothing else to do.
DEMO_SECONDS = 600.0


@contextmanager
def kept(shell: Shell) -> Iterator[Shell]:
    """The playground that a demo left; its Postgres does not outlive the block."""
    try:
        yield Shell(shell.folder / PLAYGROUND)
    finally:
        DevFolder(shell.folder / PLAYGROUND / "postgres").down()


def patiently(shell: Shell, *arguments: str) -> Ran:
    """A command that takes longer than others."""
    process = shell.start(*arguments)
    try:
        stdout, stderr = process.communicate(timeout=DEMO_SECONDS)
    finally:
        process.kill()
        process.wait()
    return Ran(process.returncode, stdout, stderr)


@pytest.mark.shown("make demo")
def test_the_demo_keeps_every_promise_and_leaves_a_playground(shell: Shell) -> None:
    with kept(shell) as playground:
        ran = patiently(shell, "demo", "--engine", "sqlite", "--keep", "--json")

        assert ran.code == 0, ran.complaint
        report = ran.document
        assert report["is_fine"] is True
        assert [step["number"] for step in report["steps"]] == list(range(1, 20))
        assert all(check["is_fine"] for step in report["steps"] for check in step["checks"])
        assert (report["sums"]["missing"], report["sums"]["different"]) == (0, 0)
        assert "everything acknowledged is there" in ran.stderr
        said = "\n".join(line for step in report["steps"] for line in step["lines"])
        for sentence in (
            r"killed with -9 after [\d,]+ rows; the others were copied in",
            r"the first rewrite forgets tips: [1-9]\d* of 60 answers were others",
            r"experiment receipts.payable_with_tip: 0 mismatches in \d{3} comparisons",
            r"Schemaless is the authority; writers waited for \d+ ms",
            r"\d+ of 200 riders were billed when the first of two workers was killed",
        ):
            assert re.search(sentence, said), sentence
        assert {check["name"] for step in report["steps"] for check in step["checks"]} >= {
            "every change is a cell",
            "what no row can hold is refused by name",
            "the job is complete",
            "shadow reads find no mismatch",
            "its experiment finds a wrong rewrite",
            "no caller got its answers",
            "the rewritten query answers as the old one",
            "the mended one is proven, and answers",
            "the diff finds exactly these",
            "what was damaged is repaired",
            "all gates pass",
            "no call of the service failed",
            "direct SQL is refused",
            "the way back is decided",
            "every rider is billed once",
            "both stores are equal",
            "added ids rise one by one, but for the repaired hole",
        }
        assert "<html" in (playground.folder / "report.html").read_text()
        assert ran.stderr.partition("Three commands to try:\n")[2].count("\n  ") == 2

        status = playground.call("status", "--json").document
        closed_ids = 1  # the hole that the missing cell left
        assert (status["migration"]["phase"], status["cells"]) == ("live", report["sums"]["stored"] + closed_ids)
        assert playground.call("doctor").code == 0
        assert playground.call("backfill", "status").code == 0
        assert playground.call("diff", "status").code == 0
        assert playground.call("schema", "plan").code == 0
        again = shell.call("demo", "--engine", "sqlite", "--keep")
        assert again.code == 1
        assert "tripstore-playground exists already" in again.complaint


def test_what_excludes_each_other_is_said(shell: Shell) -> None:
    for arguments in (("--keep", "--engine", "mariadb"), ("--mysql", "mysql://a@b", "--engine", "sqlite")):
        assert shell.call("demo", *arguments).code == 2


def test_a_page_that_cannot_be_written_is_said_before_the_demo_begins(shell: Shell) -> None:
    ran = shell.call("demo", "--report", "missing/page.html")

    assert (ran.code, "name another one by --report" in ran.stderr) == (2, True)


def test_a_page_is_left_where_it_was_asked_for_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    made, page = tmp_path / "report.html", tmp_path / "mine.html"
    with open(made, "w", opener=private) as file:
        file.write("<html>new")
    page.write_text("of an earlier run")

    assert _left(made, page).read_text() == page.read_text() == "<html>new"
    assert page.stat().st_mode & 0o777 == OWNER_ONLY
    said: list[str] = []
    _conclude(DemoReport("sqlite", True, 1.0, 16, StorySums(1, 1, 0, 0), [], None), page, said.append)
    assert said[1] == f"The report, for a browser: {page}"
    assert [line.split("  #")[0].split()[:2] for line in said[3:]] == [
        ["tripstore", each] for each in ("demo", "init", "init")
    ]


@pytest.mark.long
def test_a_demo_that_is_killed_leaves_no_process_and_no_folder_behind(shell: Shell) -> None:
    process = shell.start("demo", "--engine", "sqlite")
    try:
        wait_until("services and a worker work", lambda: is_at_work(process.pid), DEMO_SECONDS)
        begun = descendants(process.pid)
        said = [_command_line(pid).rstrip(b"\0").split(b"\0") for pid in begun]
        folders = [Path(os.fsdecode(words[-1])) for words in said if b"tripstore.local.janitor" in words]
        assert [folder.is_dir() for folder in folders] == [True, True], "its own, and that of its Postgres"
        process.kill()
        with suppress(AssertionError):  # the line below says who did not end
            wait_until("all of them have ended", lambda: not still_there(begun), 60)
        assert not still_there(begun)
        assert not any(folder.exists() for folder in folders)
    finally:
        process.kill()
        process.communicate()


def test_control_who_lives_is_told_from_who_has_ended() -> None:
    with subprocess.Popen(["sleep", "600"]) as living, subprocess.Popen(["true"]) as ended:
        wait_until("the second has ended, and its parent has not asked how", lambda: birth(ended.pid) is None)
        begun = descendants(os.getpid())
        try:
            assert still_there(begun)[living.pid] == b"sleep\x00600\x00"
            assert ended.pid not in begun
        finally:
            living.kill()
        wait_until("the first has ended", lambda: living.pid not in still_there(begun))


def is_at_work(pid: int) -> bool:
    """Services start as children of the demo as workers do, and late in it: they are waited for in `make soak`."""
    said = [_command_line(child) for child in descendants(pid)]
    worker = b"worker\x00run"  # Postgres has workers, too
    awaited = [worker, b"tripstore.demo.writer"] if SCALE >= 1 else [worker]
    return all(any(word in each for each in said) for word in awaited)


def descendants(pid: int) -> dict[int, int]:
    """The living processes that a process started, and those that these did; when each began."""
    found: dict[int, int] = {}
    waiting = [pid]
    while waiting:
        with suppress(OSError):
            children = Path(f"/proc/{waiting[-1]}/task/{waiting[-1]}/children").read_text().split()
            waiting[:0] = [int(child) for child in children]
            found |= {int(child): born for child in children if (born := birth(int(child))) is not None}
        waiting.pop()
    return found


def still_there(begun: dict[int, int]) -> dict[int, bytes]:
    """Those of the processes that have not ended, and what each of them is."""
    return {pid: _command_line(pid) for pid, born in begun.items() if birth(pid) == born}


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
