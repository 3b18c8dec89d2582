"""Dashboards as Prometheus and Grafana read them: its expressions parse, and Grafana's own model knows each key."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from tests.integration.operations.promtool import Promtool
from tests.unit.test_operations import BOARDS, expressions

#: Keys of the data source's own plugin, which the model of dashboards leaves to it.
OF_PROMETHEUS = {".annotations.list[0].titleFormat"}


def checked(promtool: Promtool, asked: list[str], folder: Path) -> str:
    """What promtool says of expressions. Grafana puts a duration in place of its variables."""
    plain = [re.sub(r"\$__\w+", "5m", each) for each in asked]
    rules = [{"record": "drawn:it", "expr": each, "labels": {"panel": str(n)}} for n, each in enumerate(plain)]
    file = folder / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "drawn", "rules": rules}]}))
    done = promtool.run("check", "rules", str(file))
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_prometheus_understands_what_a_dashboard_asks(promtool: Promtool, tmp_path: Path) -> None:
    for file in BOARDS:
        asked = [expression for expression, _ in expressions(json.loads(file.read_text()))]
        assert len(asked) > 20
        assert checked(promtool, asked, tmp_path) == ""


def test_control_an_expression_that_is_none_is_found(promtool: Promtool, tmp_path: Path) -> None:
    for wrong in ("sum(rate(tripstore_phase))", "sum by (phase (tripstore_phase)"):
        assert "could not parse expression" in checked(promtool, [wrong], tmp_path)


def lost(before: Any, after: Any, path: str = "") -> list[str]:
    """Where a document says more than another."""
    if isinstance(before, dict) and isinstance(after, dict):
        return [each for key, value in before.items() for each in lost(value, after.get(key), f"{path}.{key}")]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [each for n, pair in enumerate(zip(before, after, strict=True)) for each in lost(*pair, f"{path}[{n}]")]
    return [] if before == after else [path]


def unknown(board: dict[str, Any]) -> list[str]:
    """What Grafana's model of a dashboard does not take over."""
    kept = json.loads(JSONEncoder().encode(Dashboard.from_json(board)))
    return [each for each in lost(board, kept) if each not in OF_PROMETHEUS]


def test_grafana_knows_every_key_of_a_dashboard() -> None:
    assert {file.stem: unknown(json.loads(file.read_text())) for file in BOARDS} == {file.stem: [] for file in BOARDS}


def test_control_a_key_that_grafana_does_not_know_is_found() -> None:
    board = json.loads(BOARDS[0].read_text())
    board["panels"][1]["gridPosition"] = board["panels"][1].pop("gridPos")
    board["refreshEvery"] = "10s"

    assert sorted(unknown(board)) == [".panels[1].gridPosition", ".refreshEvery"]
