"""The demo on SQLite: real processes, one of them killed, and every promise kept."""

from __future__ import annotations

from tests.acceptance.conftest import Shell


def test_the_demo_keeps_every_promise_and_leaves_a_playground(shell: Shell) -> None:
    ran = shell.run("demo", "--engine", "sqlite", "--keep", "--json")

    assert ran.code == 0, ran.complaint
    report = ran.document
    sums = report["sums"]
    assert report["is_fine"] is True
    assert (sums["missing"], sums["different"], sums["unacknowledged"]) == (0, 0, 0)
    assert sums["acknowledged"] == sums["stored"] > 3600
    assert [step["number"] for step in report["steps"]] == list(range(1, 9))
    assert all(check["is_fine"] for step in report["steps"] for check in step["checks"])
    assert "everything acknowledged is there" in ran.stderr
    playground = Shell(shell.folder / "tripstore-playground")
    assert playground.call("status", "--json").document["cells"] == sums["stored"]
    again = shell.call("demo", "--engine", "sqlite", "--keep")
    assert again.code == 1
    assert "tripstore-playground exists already" in again.complaint
