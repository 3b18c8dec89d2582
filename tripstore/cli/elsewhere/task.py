"""What a task does on its host: `run_task`, and `look_here` before anything is begun.

Everything secret it has from its own host: the configuration that `$TRIPSTORE_CONFIG` names there, else
`tripstore.yaml` in the folder of its process. What it answers goes through the engine, so errors are told by their
sentences and nothing else of them travels.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from schemaless_core.built_in_groups import BuiltInGroups
from schemaless_core.config import DEFAULT_FILE, FILE_VARIABLE
from schemaless_core.control.jobs.jobs import Jobs
from schemaless_core.control.jobs.records import Job
from schemaless_core.errors import InvalidRequest
from schemaless_core.failpoints import reach
from schemaless_core.process.seat import Seat
from schemaless_core.told import Told
from schemaless_core.triggers.group import Group
from schemaless_core.version import VERSION
from tripstore.cli.elsewhere.engine import HostStanding, TaskOrder, TaskOutcome
from tripstore.cli.elsewhere.errors import HostsUnfit
from tripstore.cli.elsewhere.presence import Heeding
from tripstore.cli.options import Settings
from tripstore.cli.worker.duty import Opened, job_runners, opened
from tripstore.migration.backfill.serving import JobRunner

logger = logging.getLogger(__name__)


def look_here() -> dict[str, Any]:
    """A `HostStanding` of this process. No server is asked."""
    where = _place()
    try:
        core = _settings().load().core
    except Told as error:
        found = HostStanding(socket.gethostname(), VERSION, "", where, error.message, error.hint or "")
    except Exception as error:  # whatever is wrong with a host, an operator elsewhere reads of it
        logger.exception("the configuration cannot be read", extra={"event": "elsewhere.bug"})
        found = HostStanding(socket.gethostname(), VERSION, "", where, _unexpected(error))
    else:
        found = HostStanding(socket.gethostname(), VERSION, core.datastore, where)
    document: dict[str, Any] = msgspec.to_builtins(found)
    return document


def run_task(document: Mapping[str, Any]) -> dict[str, Any]:
    """Do the task of a `TaskOrder`, as far as it is wanted; a `TaskOutcome`.

    Twice is fine: each time it is a worker of another name, and leases say which of them does what.
    """
    # Made here and not at the submitter: two runs of one task under one name would take each other's parts.
    task = _Task(Seat(0).name)
    try:
        _check_version(document)
        task.run(msgspec.convert(document, TaskOrder))
    except Told as error:
        reason, hint = error.message, error.hint or ""
        extra = {"event": "elsewhere.task_failed", "worker": task.name}
        logger.warning("a task could not go on: %s", reason, extra=extra)
    except Exception as error:  # a bug, or what a driver raises: its words stay in the log of this host
        logger.exception("a task failed", extra={"event": "elsewhere.bug", "worker": task.name})
        reason, hint = _unexpected(error), "The log of that process has the traceback."
    else:
        reason = hint = ""
    host, parts, counts = socket.gethostname(), task.parts, dict(task.counts)
    done = TaskOutcome(task.name, host, parts, counts, reason, hint, is_unwanted=task.is_unwanted)
    answer: dict[str, Any] = msgspec.to_builtins(done)
    return answer


class _Task:
    """One run of a task."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_unwanted = False
        self._runner: JobRunner | None = None

    @property
    def parts(self) -> int:
        return 0 if self._runner is None else self._runner.served.parts

    @property
    def counts(self) -> Mapping[str, int]:
        return {} if self._runner is None else self._runner.served.counts

    def run(self, order: TaskOrder) -> None:
        with opened(_settings()) as stores:
            jobs = Jobs(stores.datastore.control)
            job = _found(jobs, order) if order.kind else None
            heeding = Heeding(jobs, order.subject, order.submitter)
            if not heeding.is_wanted():  # it begins late, or again
                self.is_unwanted = True
                return
            reach("elsewhere.begun")
            if job is None:
                self._serve_group(stores, order, heeding)
            else:
                self._serve_job(stores, order, job, heeding)
        reach("elsewhere.ended")

    def _serve_job(self, stores: Opened, order: TaskOrder, job: Job, heeding: Heeding) -> None:
        asked = msgspec.structs.replace(job, spec={**job.spec, **order.limits})
        self._runner = runner = job_runners(stores, self.name, is_patient=False)[job.kind](asked)
        if stores.facade is not None and stores.facade.duo is not None:
            stores.facade.duo.known.when_stale = runner.stop  # another task begins by the layout of then
        extra = {"event": "elsewhere.task_begun", "job": job.id, "worker": self.name}
        logger.info("a task serves a job", extra=extra)
        with heeding.ending(runner.stop):
            runner.serve_some(order.parts_max)

    def _serve_group(self, stores: Opened, order: TaskOrder, heeding: Heeding) -> None:
        """Keep an index version up to date, as one worker among others, until that is not wanted any more."""
        indexes = stores.datastore.indexes

        def kept() -> list[Group]:
            return [each for each in indexes.groups() if each.name == order.subject]

        with BuiltInGroups({"index": kept}) as groups:
            worker = stores.datastore.triggers.worker(groups, name=self.name)
            with heeding.ending(worker.stop):
                worker.run()


def _found(jobs: Jobs, order: TaskOrder) -> Job:
    try:
        return jobs.find(order.kind, order.subject)
    except InvalidRequest as error:
        raise HostsUnfit(
            f"{_place()} on {socket.gethostname()} has no job {order.subject}: its control database is another one.",
            hint="Give all hosts of the engine the configuration of the command.",
        ) from error


def _check_version(document: Mapping[str, Any]) -> None:
    """A process that was started before an upgrade, or after one."""
    if (theirs := document.get("version")) != VERSION:
        raise HostsUnfit(
            f"{socket.gethostname()} has tripstore {VERSION}, and the command has {theirs}.",
            hint="Install one version on all hosts, and start the workers of the engine again.",
        )


def _settings() -> Settings:
    return Settings(config=Path(os.environ.get(FILE_VARIABLE) or DEFAULT_FILE))


def _place() -> str:
    """Where this process looks for its configuration."""
    return str(Path(os.environ.get(FILE_VARIABLE) or DEFAULT_FILE).absolute())


def _unexpected(error: Exception) -> str:
    return f"Something unexpected happened on {socket.gethostname()} ({type(error).__name__})."
