"""What a backfill would copy, and with which limits: the dry run of `tripstore backfill`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import click
import msgspec
from rich.text import Text

from tripstore.cli.documents import print_document
from tripstore.cli.tables import show, table
from tripstore.config import BackfillConfig
from tripstore.migration.backfill.backfill import BackfillPlan

#: That a command may say, by their names in the configuration.
LIMITS = ("rate", "postgres_load_max", "verify")
#: That a plan has as the job will, a command's or the configuration's.
SPARING = ("blocks_max", "probe_seconds_max")

_WALKS = {"blocks": "blocks", "keys": "row keys"}


class BackfillPlanDocument(msgspec.Struct, frozen=True):
    """The JSON document of a dry run. `rows_estimate` is what the planner of Postgres believes."""

    is_partial: bool
    rows_estimate: int
    parts: int
    processes: int
    limits: dict[str, float]
    #: In which order it would be read, and why.
    walk: str
    why_walk: str
    spec: dict[str, Any]


def say_plan(config: BackfillConfig, plan: BackfillPlan, processes: int | None, *, as_json: bool) -> None:
    limits = _limits(config, plan)
    document = BackfillPlanDocument(
        is_partial=bool(plan.spec["is_partial"]),
        rows_estimate=plan.estimate,
        parts=len(plan.parts),
        processes=processes or limits.processes,
        limits={name: getattr(limits, name) for name in LIMITS} | _sparing(plan),
        walk=str(plan.spec["walk"]),
        why_walk=plan.why_walk,
        spec=plan.spec,
    )
    if as_json:
        print_document(document)
        return
    what = "a part of the rows" if document.is_partial else "everything"
    rows = [
        ("copies", what),
        ("rows", f"about {plan.estimate:,}, an estimate"),
        ("parts", f"{document.parts:,}, by {document.processes} processes"),
        ("reads", f"by {_WALKS[document.walk]}: {document.why_walk}"),
        *_limit_rows(limits),
        *_sparing_rows(plan),
    ]
    show(table(("", ""), rows), Text())
    click.echo("Nothing was copied.")


def _sparing(plan: BackfillPlan) -> dict[str, float]:
    return {name: cast(float, plan.spec.get(name) or 0) for name in SPARING}


def _sparing_rows(plan: BackfillPlan) -> Iterator[tuple[str, str]]:
    limits = _sparing(plan)
    if limits["blocks_max"]:
        yield "blocks", f"at most {limits['blocks_max']:,} read by Postgres per second"
    if limits["probe_seconds_max"]:
        yield "the probe", f"at most {1000 * limits['probe_seconds_max']:g} ms for {plan.spec['probe']}"


def _limits(config: BackfillConfig, plan: BackfillPlan) -> BackfillConfig:
    """What the configuration says, unless the command said otherwise."""
    said = {name: plan.spec[name] for name in LIMITS if plan.spec.get(name) is not None}
    return replace(config, **cast("dict[str, Any]", said))


def _limit_rows(limits: BackfillConfig) -> Iterator[tuple[str, str]]:
    yield "verified", "every row" if limits.verify >= 1 else f"{100 * limits.verify:g} % of the rows"
    if limits.rate:
        yield "rate", f"at most {limits.rate:,} rows/s"
    if limits.postgres_load_max:
        yield "load of Postgres", f"at most {limits.postgres_load_max:g} sessions at work"
    if limits.mirror_lag_seconds_max:
        yield "the mirror's lag", f"at most {limits.mirror_lag_seconds_max:g} s"
    if limits.replica_lag_cells_max:
        yield "a replica's lag", f"at most {limits.replica_lag_cells_max:,} cells"
