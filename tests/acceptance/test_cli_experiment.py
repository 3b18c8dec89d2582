"""`tripstore experiment`: what is known of rewritten queries, who gets their answers, and which uses remain."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import tripstore
from schemaless_core import Datastore
from schemaless_core.control.ledgers.ledgers import Ledgers
from tests.acceptance.conftest import Shell
from tests.chaos.actors import wait_until
from tripstore.engines.validation.reads import EXPERIMENT
from tripstore.engines.validation.shadow.ledger import LEDGER as SHADOW
from tripstore.store import TripStore

NAME = "billing.unpaid_trips"
AUDIT = {
    "path": "services/billing",
    "is_complete": True,
    "findings": [
        {"file": "bills.py", "line": 7, "table": "trips", "kind": "orm.query", "excerpt": "session.query(Trip)"},
        {"file": "reports/month.py", "line": 3, "table": "trips", "kind": "sql.select", "excerpt": "SELECT 1"},
    ],
}


@pytest.fixture
def service(store: Shell) -> Iterator[TripStore]:
    """A process of a service, which goes on while the operator sets flags."""
    with tripstore.connect(store.folder / "tripstore.yaml") as opened:
        yield opened


def compared(folder: Path, name: str, **outcomes: int) -> None:
    """What processes of a service wrote of an experiment: outcome_label=count."""
    with Datastore.open(folder / "tripstore.yaml") as opened:
        counts = {f"0/{EXPERIMENT}{name}/{what.replace('__', '/')}": count for what, count in outcomes.items()}
        Ledgers(opened.control).add(SHADOW, counts, datetime.now(UTC))


def document(store: Shell, *arguments: str, code: int = 0) -> Any:
    ran = store.call("experiment", *arguments, "--json")
    assert ran.code == code, ran.stderr
    return ran.document


def test_callers_are_turned_over_and_back_while_their_process_runs(store: Shell, service: TripStore) -> None:
    asked = service.experiment(NAME)(lambda: "old")
    asked.candidate(lambda: "new")
    assert asked() == "old"
    wait_until("it is known", lambda: document(store, "list")["experiments"])
    (listed,) = document(store, "list")["experiments"]
    assert (listed["name"], listed["percent"]) == (NAME, 0)

    refused = store.call("experiment", "set", NAME, "--percent", "100")
    assert refused.code == 4
    assert "not proven" in refused.complaint
    compared(store.folder, NAME, equal__=5000)
    assert document(store, "set", NAME, "--percent", "100", "--dry-run")["is_done"] is False
    assert asked() == "old"

    done = document(store, "set", NAME, "--percent", "100", "--why", "proven")
    assert (done["before"]["percent"], done["experiment"]["percent"], done["is_done"]) == (0, 100, True)
    wait_until("it answers", lambda: asked() == "new")
    assert store.call("experiment", "set", NAME, "--percent", "0").code == 0
    wait_until("it answers no more", lambda: asked() == "old")
    assert "experiment.set" in store.call("status").stdout


def test_a_name_that_no_process_has_is_refused_unless_it_is_meant(store: Shell) -> None:
    ran = store.call("experiment", "set", "bilings.unpaid", "--percent", "0")
    assert ran.code == 2
    assert "--ahead" in ran.complaint
    assert store.call("experiment", "status", "bilings.unpaid").code == 2
    assert store.call("experiment", "set", "a b", "--percent", "0", "--ahead").code == 2
    assert store.call("experiment", "set", NAME).code == 2

    assert document(store, "set", NAME, "--percent", "100", "--ahead", "--force")["experiment"]["percent"] == 100
    (listed,) = document(store, "list")["experiments"]
    assert (listed["name"], listed["seen"]) == (NAME, None)


def test_status_says_what_each_lacks_and_ends_with_what_that_means(store: Shell) -> None:
    assert document(store, "status", code=3)["experiments"] == []
    compared(store.folder, NAME, equal__=5000)
    (proven,) = document(store, "status")["experiments"]
    assert (proven["evidence"]["compared"], proven["evidence"]["missing"]) == (5000, 0)
    compared(store.folder, "riders.last", equal__=10)
    document(store, "status", code=3)
    document(store, "status", NAME)
    compared(store.folder, "riders.last", mismatch__order=1, not_compared__stuck=2)

    wrong = document(store, "status", "riders.last", code=1)["experiments"][0]["evidence"]
    assert (wrong["by_class"], wrong["by_reason"]) == ({"order": 1}, {"stuck": 2})
    assert document(store, "set", "riders.last", "--retired")["experiment"]["is_retired"] is True
    document(store, "status")
    screen = store.call("experiment", "status").stdout
    assert "1 order" in screen
    assert "retired" in screen


def test_uses_that_remain_are_registered_and_given_reasons(store: Shell) -> None:
    audit = store.folder / "audit.json"
    audit.write_text(json.dumps(AUDIT))
    early = store.call("experiment", "acknowledge", "billing", "*", "--why", "x")
    assert (early.code, "registers them" in early.complaint) == (2, True)

    assert document(store, "uses", "billing", "audit.json")["unnamed"] == ["bills.py:7", "reports/month.py:3"]
    assert store.call("experiment", "acknowledge", "billing", "reports/*").code == 2
    named = document(store, "acknowledge", "billing", "reports/*", "--why", "reads the archive")
    assert named["unnamed"] == ["bills.py:7"]
    audit.write_text(json.dumps({**AUDIT, "findings": AUDIT["findings"][1:]}))  # type: ignore[index]  # a list
    assert document(store, "uses", "billing", "audit.json")["unnamed"] == []
    assert document(store, "acknowledge", "billing", "reports/*", "--remove")["unnamed"] == ["reports/month.py:3"]
    (kept,) = document(store, "list")["uses"]
    assert (kept["code"], kept["uses"]) == ("billing", 1)
    assert "reports/month.py:3" in store.call("experiment", "list").stdout

    audit.write_text(json.dumps({**AUDIT, "files": 0, "findings": []}))  # of a folder that is misspelt, say
    ran = store.call("experiment", "uses", "billing", "audit.json")
    assert (ran.code, "without a file to read" in ran.complaint) == (2, True)
    (kept,) = document(store, "list")["uses"]
    assert kept["uses"] == 1
    audit.write_text("[]")
    ran = store.call("experiment", "uses", "billing", "audit.json")
    assert (ran.code, "audit code PATH --json" in ran.complaint) == (2, True)
