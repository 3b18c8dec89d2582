"""What a process exposes, as promtool reads it."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.integration.operations.promtool import Promtool
from tests.unit.test_alerts import metrics

#: Every metric with one series of each, from a process of its own: a registry forgets none.
EXPOSED = """
import sys
from prometheus_client import REGISTRY, generate_latest
from prometheus_client.metrics import MetricWrapperBase
import schemaless_core.metrics, tripstore.metrics
import tripstore.engines.backfill.metrics, tripstore.engines.validation.metrics

for module in [*sys.modules.values()]:
    if module.__name__.endswith(".metrics"):
        for metric in vars(module).values():
            if isinstance(metric, MetricWrapperBase) and metric._labelnames:
                metric.labels(*metric._labelnames)
sys.stdout.write(generate_latest(REGISTRY).decode())
"""


@pytest.fixture(scope="module")
def exposed() -> str:
    return subprocess.run([sys.executable, "-c", EXPOSED], capture_output=True, text=True, check=True).stdout


def test_every_metric_is_named_as_prometheus_wants(exposed: str, promtool: Promtool) -> None:
    told = set(re.findall(r"^# TYPE ((?:schemaless|tripstore)_\w+)", exposed, re.MULTILINE))
    assert told >= metrics().keys()

    done = promtool.run("check", "metrics", text=exposed)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_control_a_counter_that_is_named_as_none_is_found(exposed: str, promtool: Promtool) -> None:
    wrong = exposed.replace("schemaless_cells_total", "schemaless_cells")

    assert "schemaless_cells counter metrics should have" in promtool.run("check", "metrics", text=wrong).stderr
