"""The demo on SQLite: real processes, two of them killed, and every promise kept."""

from __future__ import annotations

import re

from tests.acceptance.conftest import Shell


def test_the_demo_keeps_every_promise_and_leaves_a_playground(shell: Shell) -> None:
    ran = shell.run("demo", "--engine", "sqlite", "--keep", "--json")

    assert ran.code == 0, ran.complaint
    report = ran.document
    sums = report["sums"]
    assert report["is_fine"] is True
    assert (sums["missing"], sums["different"], sums["unacknowledged"]) == (0, 0, 0)
    assert sums["acknowledged"] == sums["stored"] > 4200
    assert [step["number"] for step in report["steps"]] == list(range(1, 13))
    assert all(check["is_fine"] for step in report["steps"] for check in step["checks"])
    assert "everything acknowledged is there" in ran.stderr
    said = "\n".join(line for step in report["steps"] for line in step["lines"])
    assert re.search(r"\d+ of 300 riders were billed when the first of two workers was killed", said)
    assert re.search(r"[\d,]+ trips of 40 drivers; a query [\d.]+ ms", said)
    assert {check["name"] for step in report["steps"] for check in step["checks"]} >= {
        "every rider is billed once",
        "the index says what a scan says",
        "a verified answer is that of the cells, at once",
        "every change is a cell",
        "what no row can hold is refused by name",
        "shadow reads find no mismatch",
        "no call of the services failed meanwhile",
        "both stores are equal",
    }
    playground = Shell(shell.folder / "tripstore-playground")
    assert playground.call("status", "--json").document["cells"] == sums["stored"]
    [index] = playground.call("index", "status", "--json").document["indexes"]
    assert (index["name"], index["alias"]) == ("driver_partner_index", 1)
    again = shell.call("demo", "--engine", "sqlite", "--keep")
    assert again.code == 1
    assert "tripstore-playground exists already" in again.complaint
