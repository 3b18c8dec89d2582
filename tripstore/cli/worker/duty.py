"""`Duty`: what each process of `triggers run` and `worker run` does, and how their fleet is run and told of."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol

import click
import msgspec
from prometheus_client import start_http_server

from schemaless_core.buffers.replayer import Replayer
from schemaless_core.built_in_groups import BuiltInGroups, Source, sources
from schemaless_core.control.jobs.jobs import Job, Jobs
from schemaless_core.control.paces import SharedPace
from schemaless_core.control.pruning.old_jobs import OldJobs
from schemaless_core.control.pruning.pruner import Pruner
from schemaless_core.control.pruning.pruning import Pruning
from schemaless_core.datastore import Datastore
from schemaless_core.errors import InvalidRequest, SchemalessError
from schemaless_core.process.fleet import Fleet
from schemaless_core.process.seat import Seat
from schemaless_core.promotion.ports import AuthorityPort
from schemaless_core.store import CellStore
from schemaless_core.triggers.registry import Trigger, load_triggers
from schemaless_core.triggers.worker import Worker
from tripstore.cli.documents import print_document
from tripstore.cli.exits import Exit
from tripstore.cli.logs import show_logs
from tripstore.cli.options import Decorated, Settings, gathered
from tripstore.facade.facade import Facade
from tripstore.migration.backfill.backfill import Backfill
from tripstore.migration.backfill.serving import DetachedJobs, JobRunner
from tripstore.migration.cutover.redone import redone_diffs
from tripstore.migration.diff.diff import Diffing
from tripstore.migration.losses.losses import KIND as LOSS
from tripstore.migration.mirror.mirror import Mirror
from tripstore.ports.opened import OpenedAsRow
from tripstore.ports.present import EpochOfRow

PORT_MAX = 65535

ReadLog = Literal["primary", "replica"]

#: What a worker does of a kind without a group.
_BESIDE_GROUPS = {"mirror": "a relay", "buffer": "buffers", "failover": "leases", "jobs": "detached jobs"}

read_log_option = click.option(
    "--read",
    type=click.Choice(["primary", "replica"]),
    default="primary",
    show_default=True,
    help="Which servers to tail the log of; what a replica lacks is fetched from its primary.",
)


class RunDocument(msgspec.Struct, frozen=True):
    """The JSON document of a fleet that has ended."""

    workers: int
    restarts: int
    is_finished: bool


@dataclass(frozen=True, slots=True)
class Size:
    """How many processes and threads, and where their metrics are."""

    workers: int
    threads: int
    metrics_port: int | None
    metrics_host: str

    def ports(self) -> range:
        first = self.metrics_port
        return range(0) if first is None else range(first, first + self.workers)


class Opened(NamedTuple):
    """What a process of a fleet works with."""

    #: Schemaless itself.
    datastore: Datastore
    #: What functions are handed; with a legacy store that is the facade, without cohorts.
    store: CellStore
    #: None: there is no legacy store.
    facade: Facade | None


@contextmanager
def opened(settings: Settings) -> Iterator[Opened]:
    """The stores of the configuration."""
    if settings.load().legacy is None:
        with settings.open() as datastore:
            yield Opened(datastore, datastore, None)
        return
    with settings.connect_in_force() as store:
        store.facade.begin()
        yield Opened(store.facade.store, store.at_authority(), store.facade)


class Served(Protocol):
    """Makes the worker of one process; both go to their process by pickle."""

    def __call__(self, opened: Opened, name: str, threads: int) -> AbstractContextManager[Worker]: ...


@dataclass(frozen=True, slots=True)
class Duty:
    """The work of one process of a fleet: serve until the seat is to end."""

    settings: Settings
    size: Size
    served: Served

    def __call__(self, seat: Seat) -> None:
        show_logs(self.settings.verbosity, seat.name)
        try:
            self._serve(seat)
        except SchemalessError as error:
            if self.settings.is_debug:
                raise
            click.echo(f"{seat.name}: {error.message} {error.hint or ''}".rstrip(), err=True)
            sys.exit(Exit.FAILED)

    def _serve(self, seat: Seat) -> None:
        if self.size.metrics_port is not None:
            start_http_server(self.size.metrics_port + seat.number, self.size.metrics_host)
        while self._serve_by_one_layout(seat):
            click.echo(f"{seat.name} begins again: another layout is in force", err=True)
        click.echo(f"{seat.name} ended; what it held was given back", err=True)

    def _serve_by_one_layout(self, seat: Seat) -> bool:
        """Serve until the seat is to end, or another layout is put in force: whether that was it.

        What the worker is made of goes by one layout from the beginning to the end.
        """
        is_stale = threading.Event()
        with opened(self.settings) as stores, self.served(stores, seat.name, self.size.threads) as worker:

            def end() -> None:
                is_stale.set()
                worker.stop()

            seat.at_end(worker.stop)
            if stores.facade is not None and stores.facade.duo is not None:
                stores.facade.duo.known.when_stale = end
            worker.run()
        return is_stale.is_set() and not seat.is_over


@dataclass(frozen=True, slots=True)
class ServedTriggers:
    """Serves the triggers of a module."""

    target: str
    read: ReadLog = "primary"

    @contextmanager
    def __call__(self, opened: Opened, name: str, threads: int) -> Iterator[Worker]:
        triggers = imported(self.target)
        serve = opened.datastore.triggers.worker
        duo = None if opened.facade is None else opened.facade.duo
        rules = None if duo is None else duo.staged
        hung = partial(_end_hung, name)
        yield serve(triggers, threads=threads, read=self.read, name=name, store=opened.store, rules=rules, hung=hung)


def _end_hung(name: str) -> None:
    click.echo(f"{name} ends: a function did not return in its time, and its cell is parked", err=True)
    os._exit(Exit.FAILED)


@dataclass(frozen=True, slots=True)
class ServedBuiltIns:
    """Serves the built-in work of these kinds, groups that come later too."""

    kinds: tuple[str, ...]
    read: ReadLog = "primary"

    @contextmanager
    def __call__(self, opened: Opened, name: str, threads: int) -> Iterator[Worker]:
        def tell(names: Sequence[str]) -> None:
            has_buffers = opened.datastore.config.buffer is not None
            has_leases = any(cluster.is_leased for cluster in opened.datastore.clusters.values())
            is_there = {"buffer": has_buffers, "failover": has_leases}
            kinds = [kind for kind in self.kinds if is_there.get(kind, True)]
            if opened.facade is None and len(kinds) > 1:
                kinds = [kind for kind in kinds if kind != "jobs"]  # an fsck may come: served, and not told of
            waits = f"has nothing to serve yet and waits: no {', no '.join(kinds)}"
            work = [what for kind, what in _BESIDE_GROUPS.items() if kind in kinds] + list(names)
            what = f"serves {', '.join(work)}" if work else waits
            click.echo(f"{name} {what}", err=True)

        with ExitStack() as running:
            listed = self._sources(opened, running, name)
            groups = running.enter_context(BuiltInGroups(listed, tell))
            if not listed:
                tell(())  # there is no group that would be found
            yield opened.datastore.triggers.worker(groups, threads=threads, read=self.read, name=name)

    def _sources(self, opened: Opened, running: ExitStack, name: str) -> dict[str, Source]:
        """Who lists the groups of each kind. A relay, and what serves jobs, begin here: they belong to no group."""
        known = sources(opened.datastore)
        if "buffer" in self.kinds:  # also without the section: something may wait since it was there
            running.enter_context(replayer_of(opened))
        if "failover" in self.kinds:
            running.enter_context(opened.datastore.failover(authority_of(opened)))
        if "jobs" in self.kinds:
            jobs = Jobs(opened.datastore.control)
            running.enter_context(DetachedJobs(jobs, job_runners(opened, name)))
            running.enter_context(pruner_of(opened))
        if "mirror" in self.kinds and opened.facade is not None:
            mirror = Mirror(opened.facade, name)
            running.enter_context(mirror.log_keeper())
            running.enter_context(mirror.partition_keeper())
            running.enter_context(mirror.relay())
            known["mirror"] = mirror.groups()
        return {kind: known[kind] for kind in self.kinds if kind in known}


def replayer_of(opened: Opened) -> Replayer:
    """What carries cells that wait in buffers, by the authority row where there is one."""
    duo = None if opened.facade is None else opened.facade.duo
    return opened.datastore.replayer(None if duo is None else EpochOfRow(duo.ports.control))


def authority_of(opened: Opened) -> AuthorityPort | None:
    """Who says how the shards of a promoted server are opened; None: there is no legacy store."""
    duo = None if opened.facade is None else opened.facade.duo
    return None if duo is None else OpenedAsRow(duo.ports.control)


def pruner_of(opened: Opened) -> Pruner:
    """What takes out of the control database what is too old. What a promoted Postgres lacked is history."""
    control, ages = opened.datastore.control, opened.datastore.config.prune
    jobs = OldJobs(control) if opened.facade is None else OldJobs(control, (LOSS,), partial(redone_diffs, control))
    return Pruner(Pruning(control, ages, jobs), SharedPace(control, "prune"))


def job_runners(opened: Opened, name: str, *, is_patient: bool = True) -> dict[str, Callable[[Job], JobRunner]]:
    """What serves the jobs of each kind, as a worker of this name. A patient one never gives a backfill up."""
    runners: dict[str, Callable[[Job], JobRunner]] = {
        "fsck": lambda job: opened.datastore.fsck.runner(job, name),
        "purge": lambda job: opened.datastore.purge_jobs.runner(job, name),
        "compress": lambda job: opened.datastore.compress_jobs.runner(job, name),
        "backup": lambda job: opened.datastore.backups().runner(job, name),
        "restore": lambda job: opened.datastore.backups(authority_of(opened)).restore_runner(job, name),
        "move": lambda job: opened.datastore.moves(authority_of(opened)).runner(job, name),
    }
    if (facade := opened.facade) is not None:
        runners["backfill"] = lambda job: Backfill(facade).runner(job, name, is_patient=is_patient)
        runners["diff"] = lambda job: Diffing(facade).runner(job, name)
    return runners


def run_fleet(duty: Duty, *, as_json: bool) -> Exit:
    """Run a duty in all its processes until a signal ends it."""
    _check_ports(duty.size)
    fleet = Fleet(duty, duty.size.workers)
    click.echo("Ctrl-C ends it after the work at hand; a second Ctrl-C ends it at once.", err=True)
    is_finished = fleet.run()
    if as_json:
        print_document(RunDocument(duty.size.workers, fleet.restarts, is_finished))
    return Exit.FINE if is_finished else Exit.INTERRUPTED


def imported(target: str) -> list[Trigger]:
    """Import the triggers of a module, which may lie in the current folder."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return load_triggers(target)
    except SchemalessError:
        raise
    except Exception as error:  # the user's module: whatever it raises while it is imported, its author should see
        kind = type(error).__name__
        raise InvalidRequest(
            f"{target} cannot be imported ({kind}: {error}).", hint="Mend the module; --debug shows the traceback."
        ) from error


def size_options(function: Decorated) -> Decorated:
    """Add the options of `Size` to a command, which takes them as `size`."""
    options: list[Callable[[Any], Any]] = [
        click.option("--workers", type=click.IntRange(1, 1024), default=1, show_default=True, help="Processes."),
        click.option(
            "--threads",
            type=click.IntRange(1, 256),
            default=1,
            show_default=True,
            help="Shards that one process delivers at the same time; for functions that wait for others.",
        ),
        click.option(
            "--metrics-port",
            type=click.IntRange(1, PORT_MAX),
            metavar="PORT",
            help="Serve Prometheus metrics: the first process here, the next one port higher.",
        ),
        click.option(
            "--metrics-host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="The address to serve at."
        ),
    ]
    return gathered(function, options, "size", Size)


def _check_ports(size: Size) -> None:
    """Try all ports now: a child could only die of it, again and again."""
    for port in size.ports():
        if port > PORT_MAX:
            raise click.UsageError(f"{size.workers} workers from port {size.metrics_port} on need port {port}.")
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind((size.metrics_host, port))
            except OSError as problem:
                raise click.UsageError(
                    f"{size.metrics_host}:{port} cannot be served ({problem.strerror}); choose another --metrics-port."
                ) from problem
