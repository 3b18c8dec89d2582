"""What backfills and diffs spare alike: blocks that Postgres reads, and the latency that services see.

These limits are a part of a job, so they hold on whichever host it is served. One that a job does not have it gets from
the configuration of the process that serves it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from schemaless_core.cell.canonical import Json
from schemaless_core.control.database import ControlDatabase
from schemaless_core.control.paces import SharedPace
from schemaless_core.deadline import Deadline
from schemaless_core.errors import InvalidRequest
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.backends.postgres.wire.own_reads import check_counted
from tripstore.backends.postgres.wire.probe import ServiceProbe
from tripstore.config import ThrottleConfig
from tripstore.engines.backfill.block_limit import BlockLimit
from tripstore.engines.backfill.latency_limit import LatencyLimit, LatencyWatch
from tripstore.engines.backfill.throttle import Throttle

#: As a job has them, in the words of the configuration.
OF_JOBS = ("blocks_max", "probe", "probe_seconds_max", "probe_deadline_seconds")
#: What goes together: a limit on the latency is of one statement.
OF_PROBES = OF_JOBS[1:]
LOOK_SECONDS = 2.0


def limits_of(config: ThrottleConfig, spec: Mapping[str, Any]) -> ThrottleConfig:
    """The limits of a job."""
    said = {name: spec[name] for name in OF_JOBS if spec.get(name) is not None}
    return replace(config, **said)


def kept(config: ThrottleConfig, said: Mapping[str, Any]) -> dict[str, Json]:
    """What a job is to have of its limits: those that a command said, and all that hold."""
    limits = limits_of(config, said)
    wanted = {name for name in OF_JOBS if said.get(name) is not None}
    if limits.blocks_max:
        wanted.add("blocks_max")
    if limits.probe_seconds_max:
        wanted.update(OF_PROBES)
    return {name: getattr(limits, name) for name in OF_JOBS if name in wanted}


def check_limits(limits: ThrottleConfig, database: LegacyDatabase, *, is_begun: bool = False) -> None:
    """Raise `InvalidRequest` for a limit that could not be kept: what cannot be measured is no limit (I12).

    A job that is begun may be resumed while services wait.
    """
    if limits.blocks_max:
        database.run(check_counted, Deadline(LOOK_SECONDS))
    if limits.probe_seconds_max:
        _probe(limits, database).check(may_be_slow=is_begun)


def sparing(limits: ThrottleConfig, database: LegacyDatabase, control: ControlDatabase, job: str) -> list[Throttle]:
    """For one of the workers of a job. `InvalidRequest`: neither the job nor this host has a probe."""
    found: list[Throttle] = []
    if limits.blocks_max:
        found.append(BlockLimit(limits.blocks_max, SharedPace(control, f"{job}:blocks")))
    if limits.probe_seconds_max:
        watch = LatencyWatch(_probe(limits, database))
        found.append(LatencyLimit(limits.probe_seconds_max, limits.probe_deadline_seconds, watch))
    return found


def _probe(limits: ThrottleConfig, database: LegacyDatabase) -> ServiceProbe:
    if not limits.probe:
        hint = "Write throttle: {probe: SELECT …} into the configuration of each host that serves the job."
        raise InvalidRequest("There is a limit on the latency of a probe, and no probe.", hint=hint)
    if limits.probe_seconds_max >= limits.probe_deadline_seconds:
        raise InvalidRequest(
            f"A probe is ended after {limits.probe_deadline_seconds:g} s, so its latency cannot be limited"
            f" to {limits.probe_seconds_max:g} s.",
            hint="Give a lower limit, or raise throttle.probe_deadline_seconds.",
        )
    return ServiceProbe(database, limits.probe, limits.probe_deadline_seconds)
