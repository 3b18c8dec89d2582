"""Files for operators: dashboards ask for metrics and labels that there are, a unit starts a command that there is."""

from __future__ import annotations

import configparser
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from tests.unit.test_alerts import ADDED, PARTS, ROOT, metrics
from tripstore.cli.root import root

OPERATIONS = ROOT / "docs" / "operations"
BOARDS = sorted((OPERATIONS / "grafana").glob("*.json"))
UNITS = sorted((OPERATIONS / "systemd").glob("*.service"))
#: What no operator draws: each is for one process's own start or layout, and stands in the pages.
NOT_DRAWN = {
    "schemaless_cells_turned_total",
    "schemaless_dictionary_missed_total",
    "schemaless_replication_lag_cells",
    "schemaless_replication_lag_seconds",
    "schemaless_shards_created_total",
    "tripstore_backfill_chunk_rows",
    "tripstore_backfill_chunk_seconds",
    "tripstore_cohort_reads_total",
    "tripstore_diff_step_seconds",
    "tripstore_http_seconds",
    "tripstore_job_blocks_read_total",
    "tripstore_layout_changes_total",
    "tripstore_layout_reloads_total",
    "tripstore_numbers_drawn_total",
    "tripstore_probe_seconds",
    "tripstore_refusals_total",
    "tripstore_reverse_cells_total",
    "tripstore_reverse_joint_cells_total",
    "tripstore_reverse_legacy_ids_total",
    "tripstore_undeliverable_total",
}


def panels(board: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from (each for each in board["panels"] if each["type"] != "row")


def expressions(board: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Each expression with how its series are named."""
    for panel in panels(board):
        yield from ((target["expr"], target["legendFormat"]) for target in panel["targets"])
    yield from ((each["expr"], each["titleFormat"]) for each in board["annotations"]["list"])


def named(expression: str) -> set[str]:
    found = re.findall(r"\b(?:schemaless|tripstore)_\w+", expression)
    return {re.sub(f"({'|'.join(PARTS)})$", "", each) for each in found}


def faults(expression: str, legend: str) -> Iterator[str]:
    known = metrics()
    names = named(expression)
    if not names:
        yield "it asks for no metric"
    yield from (f"there is no metric {name}" for name in names - known.keys())
    by = {label for labels in re.findall(r"\bby \(([^)]*)\)", expression) for label in re.findall(r"\w+", labels)}
    chosen = set(re.findall(r"(\w+)=\"", expression))
    there = set[str]().union(ADDED, *(known.get(name, set()) for name in names))
    yield from (f"no metric of it has the label {label}" for label in (by | chosen) - there)
    yield from (f"{label} is shown, and is no label" for label in set(re.findall(r"{{(\w+)}}", legend)) - by)


@pytest.mark.parametrize("file", BOARDS, ids=lambda file: file.stem)
def test_a_dashboard_asks_for_metrics_that_there_are(file: Path) -> None:
    board = json.loads(file.read_text())

    assert [(each, fault) for each in expressions(board) for fault in faults(*each)] == []
    ids = [each["id"] for each in board["panels"]]
    assert len(ids) == len(set(ids))
    assert {each["name"] for each in board["templating"]["list"]} == {"datasource"}


@pytest.mark.parametrize("file", BOARDS, ids=lambda file: file.stem)
def test_panels_of_a_dashboard_lie_beside_each_other(file: Path) -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in json.loads(file.read_text())["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, f"{panel['title']} lies over {taken[x, y]}"
                taken[x, y] = panel["title"]


def test_every_metric_is_drawn_somewhere_or_named_here() -> None:
    boards = [json.loads(file.read_text()) for file in BOARDS]
    drawn = {name for board in boards for expression, _ in expressions(board) for name in named(expression)}

    assert metrics().keys() - drawn == NOT_DRAWN


@pytest.mark.parametrize(
    ("expression", "legend", "fault"),
    [
        ("sum(rate(tripstore_gone_total[5m]))", "", "there is no metric tripstore_gone_total"),
        ("sum by (gone) (tripstore_phase)", "", "no metric of it has the label gone"),
        ("sum(tripstore_phase)", "{{phase}}", "phase is shown, and is no label"),
        ("vector(1)", "", "it asks for no metric"),
    ],
)
def test_control_what_is_not_there_is_named(expression: str, legend: str, fault: str) -> None:
    assert fault in [*faults(expression, legend)]


@pytest.mark.parametrize("file", UNITS, ids=lambda file: file.stem)
def test_a_unit_starts_a_command_that_there_is(file: Path) -> None:
    unit = configparser.ConfigParser(strict=True, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]  # names of settings have capitals
    unit.read_string(file.read_text())

    program, *arguments = shlex.split(unit["Service"]["ExecStart"])

    assert Path(program).name == "tripstore"
    command: click.Command = root
    for word in [each for each in arguments if not each.startswith("-")]:
        assert isinstance(command, click.Group), word
        found = command.get_command(click.Context(command), word)
        assert found is not None, word
        command = found
    assert unit["Install"]["WantedBy"] == "multi-user.target"
