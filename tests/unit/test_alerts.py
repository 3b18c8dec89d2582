"""The rules for Prometheus: of metrics and labels that there are, each with a page that says what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from tests.markdown import anchors

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "docs" / "operations" / "alerts.yaml"
PACKAGES = ("schemaless_core", "tripstore", "backfill", "validation")
#: What Prometheus adds to the name of a histogram, or to its labels.
PARTS, ADDED = ("_bucket", "_count", "_sum"), {"le"}


class Alert(NamedTuple):
    """One rule."""

    name: str
    expression: str
    page: str
    text: str


def alerts(text: str) -> list[Alert]:
    rules = [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]
    return [Alert(rule["alert"], rule["expr"], rule["annotations"]["page"], str(rule)) for rule in rules]


def metrics() -> dict[str, set[str]]:
    """The labels of each metric."""
    source = "".join(path.read_text() for package in PACKAGES for path in (ROOT / package).rglob("metrics.py"))
    found = re.findall(r'"((?:schemaless|tripstore)_\w+)",\s*"[^"]+"(?:,\s*\[([^\]]*)\])?', source)
    return {name: set(re.findall(r"\w+", labels)) for name, labels in found}


def faults(alert: Alert, known: dict[str, set[str]]) -> Iterator[str]:
    """What is wrong with a rule."""
    names = {
        re.sub(f"({'|'.join(PARTS)})$", "", each)
        for each in re.findall(r"\b(?:schemaless|tripstore)_\w+", alert.expression)
    }
    if not names:
        yield "it asks for no metric"
    yield from (f"there is no metric {name}" for name in names - known.keys())
    by = {label for labels in re.findall(r"\bby \(([^)]*)\)", alert.expression) for label in re.findall(r"\w+", labels)}
    chosen = set(re.findall(r"(\w+)=\"", alert.expression))
    shown = set(re.findall(r"\$labels\.(\w+)", alert.text))
    there = set[str]().union(ADDED, *(known.get(name, set()) for name in names))
    yield from (f"no metric of it has the label {label}" for label in (by | chosen) - there)
    yield from (f"{label} is shown, and is no label of its result" for label in shown - by)
    file, _, anchor = alert.page.partition("#")
    page = ROOT / "docs" / file
    if not page.is_file() or anchor not in anchors(re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)):
        yield f"there is no page {alert.page}"


@pytest.mark.parametrize("alert", alerts(ALERTS.read_text()), ids=lambda alert: alert.name)
def test_an_alert_asks_for_what_there_is_and_has_a_page(alert: Alert) -> None:
    assert list(faults(alert, metrics())) == []


def test_control_a_rule_that_asks_for_what_is_not_there_is_named() -> None:
    wrong = Alert(
        "Wrong",
        'max by (nod) (schemaless_breaker_opened{calls="reads"}) > 0 or schemaless_buffer_cells > 1',
        "howto/runbook-3am.md#a-breaker-is-opened",
        "{{ $labels.cluster }}",
    )

    assert sorted(faults(wrong, metrics())) == [
        "cluster is shown, and is no label of its result",
        "no metric of it has the label calls",
        "no metric of it has the label nod",
        "there is no metric schemaless_breaker_opened",
        "there is no page howto/runbook-3am.md#a-breaker-is-opened",
    ]


def test_no_two_alerts_have_one_name() -> None:
    names = [alert.name for alert in alerts(ALERTS.read_text())]

    assert len(names) == len(set(names)) > 10


def test_the_reference_of_metrics_names_each_alert() -> None:
    """A reader of the page sees what is watched without opening the file."""
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()

    assert {alert.name for alert in alerts(ALERTS.read_text())} == set(re.findall(r"`(Tripstore\w+)`", page))
