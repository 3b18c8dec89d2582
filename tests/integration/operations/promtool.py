"""promtool as the tests call it, and situations as files of its own."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.integration.operations.situations import INTERVAL, Situation

_TESTED = re.compile(r"alertname: (\w+), time: (\w+),")


class Promtool:
    """The program."""

    def __init__(self, program: Path) -> None:
        self._program = program

    def run(self, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
        command = [str(self._program), *arguments]
        return subprocess.run(command, input=text, capture_output=True, text=True, check=False)

    def complaints(self, rules: dict[str, Any], situations: Iterable[Situation], folder: Path) -> set[tuple[str, str]]:
        """The alerts that say otherwise than their situations, each with the moment."""
        told = _told(rules)
        (folder / "alerts.yaml").write_text(yaml.safe_dump(rules))
        tests = [_tested(each, told[each.alert]) for each in situations]
        document = {"rule_files": ["alerts.yaml"], "evaluation_interval": INTERVAL, "tests": tests}
        # JSON is YAML, and leaves no doubt about quotes.
        (folder / "tests.yaml").write_text(json.dumps(document))
        done = self.run("test", "rules", str(folder / "tests.yaml"))
        said = done.stdout + done.stderr
        found = set(_TESTED.findall(said))
        assert (done.returncode == 0) is (not found), said
        return found


def _told(rules: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Of each alert its severity and its page, which stand in its rule alone."""
    return {
        rule["alert"]: (rule["labels"]["severity"], rule["annotations"]["page"])
        for group in rules["groups"]
        for rule in group["rules"]
    }


def _tested(situation: Situation, told: tuple[str, str]) -> dict[str, Any]:
    severity, page = told
    expected = []
    if situation.labels is not None:
        labels = {**situation.labels, "severity": severity}
        expected.append({"exp_labels": labels, "exp_annotations": {"summary": situation.summary, "page": page}})
    series: Sequence[dict[str, str]] = [{"series": name, "values": values} for name, values in situation.series.items()]
    asked = {"eval_time": situation.at, "alertname": situation.alert, "exp_alerts": expected}
    return {"interval": INTERVAL, "input_series": series, "alert_rule_test": [asked]}
