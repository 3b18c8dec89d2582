"""Whatever a diff could not compare holds the gate of a switch (I12); what can never be compared does not."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from schemaless_core import Datastore
from schemaless_core.control.jobs.jobs import Finding, Jobs
from schemaless_core.control.jobs.notes import NOT_COMPARED
from schemaless_core.control.ledgers.ledgers import Ledgers
from tests.unit.test_gates import FINE, judged
from tripstore.engines.validation.diff.older import FORGOTTEN_COUNT
from tripstore.migration.cutover.job_facts import job_facts
from tripstore.migration.diff.unit import UNIT


@pytest.fixture
def datastore(tmp_path: Path) -> Datastore:
    found = Datastore.open(
        {"datastore": "trips", "shards": 2, "clusters": {"a": {"primary": f"sqlite:///{tmp_path / 'a'}"}}}
    )
    found.create_schema()
    return found


def refusals_of(datastore: Datastore, unit: str = UNIT, /, **counts: int) -> list[str]:
    """What the gates say when all is well, and the newest diff counted this."""
    jobs = Jobs(datastore.control)
    job = jobs.create("diff", {"note": {"unit": unit}}, [{}])
    part = jobs.claim(job.id, "worker", 60)
    assert part is not None
    jobs.save(part, "worker", checkpoint=1, counts=counts, is_done=True, lease_seconds=60)
    found = job_facts([note.body for note in Ledgers(datastore.control).notes("diff", 10)])
    assert found is not None
    begun_at = FINE.at - timedelta(hours=1)
    return [f"{each.name}: {each.said}" for each in judged(replace(FINE, diff=replace(found, begun_at=begun_at)))]


@pytest.mark.parametrize("name", NOT_COMPARED)
def test_what_was_not_compared_holds_the_gate(datastore: Datastore, name: str) -> None:
    assert refusals_of(datastore, rows=5, equal=5) == []

    (refused,) = refusals_of(datastore, rows=5, equal=5, **{name: 3})
    assert refused.startswith("diff: 0 open, 3 not compared")


def test_a_finding_that_says_so_is_no_open_difference(datastore: Datastore) -> None:
    """The gate tells the two apart, whether there are differences beside it or none."""
    jobs = Jobs(datastore.control)
    job = jobs.create("diff", {}, [{}])
    part = jobs.claim(job.id, "worker", 60)
    assert part is not None
    busy = Finding("busy", uuid4(), "BASE", 1, {})
    jobs.save(part, "worker", checkpoint=1, counts={"not_compared": 1}, findings=[busy], is_done=True, lease_seconds=60)

    (note,) = Ledgers(datastore.control).notes("diff", 10)

    assert (note.body["open"], note.body["not_compared"]) == (0, 1)


def test_versions_that_a_store_has_forgotten_do_not(datastore: Datastore) -> None:
    assert refusals_of(datastore, rows=5, equal=5, older_equal=2, **{FORGOTTEN_COUNT: 3}) == []


def test_a_diff_that_compared_one_child_of_each_parent_does_not_open_it(datastore: Datastore) -> None:
    """I12; nor does it hide one that compared every row."""
    assert refusals_of(datastore, "column", rows=5, equal=5) == [
        "diff: by an earlier version, which compared one child of each parent"
    ]
    assert refusals_of(datastore, rows=5, equal=5) == []
    assert refusals_of(datastore, "column", rows=5, equal=5) == []


def test_rows_of_a_table_that_were_not_compared_are_named(datastore: Datastore) -> None:
    counts = {"table_rows": 16_824, "table_rows_compared": 1_917, "table_not_compared": 14_907}

    assert refusals_of(datastore, rows=5, equal=5, **counts) == [
        "diff: 1,917 of 16,824 rows of the tables were compared"
    ]
