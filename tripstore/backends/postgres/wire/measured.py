"""Measures a call as the core's stores do: how long it took and what came of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from schemaless_core import metrics
from schemaless_core.cell.put_errors import BatchFailed
from schemaless_core.errors import Conflict, Invalid, SchemalessError, StaleEpoch, Unavailable

P = ParamSpec("P")
T = TypeVar("T")

_OUTCOMES: dict[type[SchemalessError], str] = {
    Unavailable: "unavailable",
    Conflict: "conflict",
    Invalid: "invalid",
    StaleEpoch: "stale_epoch",
    BatchFailed: "batch_failed",
}


def measured(operation: str, part: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    """Run a call and record it."""
    started = time.perf_counter()
    outcome = "ok"
    try:
        return part(*arguments, **options)
    except SchemalessError as error:
        outcome = next((name for kind, name in _OUTCOMES.items() if isinstance(error, kind)), "failed")
        raise
    except BaseException:
        outcome = "bug"
        raise
    finally:
        metrics.call_finished(operation, outcome, time.perf_counter() - started)
