"""Each alert tells an operator when it should and is silent when it should be, as Prometheus reads it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from tests.integration.operations.promtool import Promtool
from tests.integration.operations.situations import EARLY, FIRES, SILENT, SOON, Situation
from tests.unit.test_alerts import ADDED, ALERTS, PARTS, alerts, metrics


def rules(change: Callable[[dict[str, Any]], object] = lambda rule: None) -> dict[str, Any]:
    """The file, each of its rules changed."""
    read: dict[str, Any] = yaml.safe_load(ALERTS.read_text())
    for group in read["groups"]:
        for rule in group["rules"]:
            change(rule)
    return read


def asked(situations: list[Situation]) -> set[tuple[str, str]]:
    """As promtool names them where they fail."""
    return {(each.alert, each.at) for each in situations}


def test_every_alert_has_a_situation_that_fires_it_and_one_that_does_not() -> None:
    names = {alert.name for alert in alerts(ALERTS.read_text())}

    assert {each.alert for each in FIRES} == {each.alert for each in SILENT} == names


def test_situations_are_of_metrics_and_labels_that_there_are() -> None:
    known = metrics()
    for each in FIRES + SILENT:
        for series in each.series:
            name, _, labels = series.partition("{")
            there = known[re.sub(f"({'|'.join(PARTS)})$", "", name)] | ADDED | {"instance"}
            assert set(re.findall(r"(\w+)=", labels)) <= there, series


def test_each_alert_tells_when_it_should_and_what_it_should(promtool: Promtool, tmp_path: Path) -> None:
    assert promtool.complaints(rules(), FIRES, tmp_path) == set()


def test_each_alert_is_silent_when_it_should_be(promtool: Promtool, tmp_path: Path) -> None:
    assert promtool.complaints(rules(), SILENT, tmp_path) == set()


def test_control_rules_that_never_tell_are_found(promtool: Promtool, tmp_path: Path) -> None:
    never = rules(lambda rule: rule.update(expr="vector(0) > 1"))

    assert promtool.complaints(never, FIRES, tmp_path) == asked(FIRES)


def test_control_rules_that_always_tell_are_found(promtool: Promtool, tmp_path: Path) -> None:
    always = rules(lambda rule: rule.update({"expr": "vector(1)", "for": "0s"}))

    assert promtool.complaints(always, SILENT, tmp_path) == asked(SILENT)


def test_an_alert_waits_as_long_as_its_rule_says(promtool: Promtool, tmp_path: Path) -> None:
    waiting = {rule["alert"] for group in rules()["groups"] for rule in group["rules"] if "for" in rule}

    assert waiting == EARLY.keys()
    assert promtool.complaints(rules(), SOON, tmp_path) == set()


def test_control_a_rule_that_waits_a_step_less_is_found(promtool: Promtool, tmp_path: Path) -> None:
    def hasten(rule: dict[str, Any]) -> None:
        if "for" in rule:
            rule["for"] = f"{_seconds(rule['for']) - 15}s"

    assert promtool.complaints(rules(hasten), SOON, tmp_path) == asked(SOON)


def _seconds(duration: str) -> int:
    return int(duration[:-1]) * {"s": 1, "m": 60}[duration[-1]]


def test_control_the_first_event_of_a_process_is_missed_by_its_increase_alone(
    promtool: Promtool, tmp_path: Path
) -> None:
    """A counter with labels begins at 1: `increase` needs a value before."""
    former = rules(lambda rule: rule.update(expr=re.sub(r" or sum.* unless .*", "", rule["expr"])))

    firsts = [each for each in FIRES if [*each.series.values()] == ["_x8 1x40"]]
    assert len(firsts) >= 7
    assert promtool.complaints(former, FIRES, tmp_path) == asked(firsts)


def test_control_a_situation_without_its_text_is_found(promtool: Promtool, tmp_path: Path) -> None:
    wrong = FIRES[0]._replace(summary="Something else.")

    assert promtool.complaints(rules(), [wrong], tmp_path) == asked([wrong])
