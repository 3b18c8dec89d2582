"""Switches and reversals under load while processes and servers die and stop: nothing is lost, nobody writes outside
his epoch, and a hand-over that cannot finish is undone by whoever is alive (I1, I2, I4, I8, I9)."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from itertools import pairwise, starmap
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Timer
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
import yaml

from schemaless_core.failpoints import ENVIRONMENT_VARIABLE
from tests.chaos.actors import end, running
from tests.chaos.capture_actors import KEYS, WITNESS, errors_in
from tests.chaos.switch_actors import Attempt, Line, Service, Switcher, facade_writer, is_stopped, relay, sql_writer
from tests.chaos.switch_rules import Evidence, broken, check, gather
from tests.crew import wait_until_caught_up
from tests.facades import Migration, migration
from tests.scale import SCALE, scaled
from tests.stores import SERVER_ENGINES, ServerEngine, Stores
from tripstore.backends.postgres.capture.sqlstates import GATE_SHUT
from tripstore.cutover.plan import Direction
from tripstore.cutover.settings import CutoverSettings
from tripstore.handover.authority import Backend
from tripstore.local.binlog import BinlogServer
from tripstore.local.postgres import PostgresServer
from tripstore.local.replication import Cluster
from tripstore.local.server import Server
from tripstore.local.servers import LocalServers
from tripstore.mirror.mirror import Mirror
from tripstore.mirror.reverse import GROUP
from tripstore.phase import Phase
from tripstore.ports.control import MAX_PAUSE_SECONDS, RealControlPort

ENGINES: tuple[ServerEngine, ...] = SERVER_ENGINES if SCALE >= 1 else SERVER_ENGINES[:1]

HAND_OVERS = scaled(40, least=6)
WRITERS, PER_SECOND = 6, scaled(500, least=60)
SQL_WRITERS, SQL_PER_SECOND = 3, 10
OPEN_SECONDS = scaled(30, least=2)
#: Between two hand-overs.
REST_SECONDS = 1.0 if SCALE >= 1 else 0.3
LOOK_SECONDS = 0.1
#: Whoever is killed keeps his shards for so long, and no way back is open meanwhile.
LEASE_SECONDS = 3.0
#: A server that stops is away for longer than a hand-over may take.
STOPPED_SECONDS = MAX_PAUSE_SECONDS + 1.0
#: From here on a way back is tried; under the full load what the gate allows: offsets are saved now and then.
REVERSE_CELLS_MAX = CutoverSettings().lag_changes_max if SCALE >= 1 else 50
#: Of a hand-over without accidents.
PAUSE_SECONDS_MAX = 0.5
#: Its own clock begins when a process first sees it, which it looks for twice a second.
UNDONE_SECONDS_MAX = MAX_PAUSE_SECONDS + 2.0

LIMITS = {
    "put_seconds": 2.0,
    "read_seconds": 2.0,
    "pool_seconds": 2.0,
    "connect_seconds": 1.0,
    "lock_seconds": 1.0,
    "idle_transaction_seconds": 1.5,
}
DEADLINES = {"put_seconds": 2.0, "read_seconds": 2.0, "connect_seconds": 1.0, "pool_seconds": 2.0, "scan_seconds": 30.0}

#: A row that comes back under its UUID has its id again, as services have it whose ids mean something.
SAME_IDS = f"""
CREATE FUNCTION same_id() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN NEW.id := -('x' || right(NEW.trip_uuid::text, 8))::bit(32)::int; RETURN NEW; END $$;
CREATE TRIGGER "0_same_id" BEFORE INSERT ON trips FOR EACH ROW
WHEN (NEW.trip_uuid <= '{KEYS[-1]}') EXECUTE FUNCTION same_id()
"""


def wait_for(what: str, is_so: Callable[[], bool], seconds: float, every_seconds: float = LOOK_SECONDS) -> None:
    """Look now and then: two cores are for those who work."""
    until = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < until, f"timed out waiting until {what}"
        time.sleep(every_seconds)


class Fault(NamedTuple):
    """What happens to whom, where in his steps."""

    victim: str
    action: str
    point: str

    def __str__(self) -> str:
        return f"{self.victim}: {self.action} at {self.point}"


def faults(victim: str, action: str, *points: str) -> list[Fault]:
    return [Fault(victim, action, point) for point in points]


FORWARD = (
    "switch.close",
    "switch.barrier",
    "switch.shut",
    "relay.count",
    "switch.decide",
    "settle.obey",
    "settle.open",
)
BACK = ("back.close", "back.shut", "back.count", "back.decide", "settle.obey")
FAULTS = {
    Direction.FORWARD: [
        *faults("switcher", "kill", *FORWARD),
        *faults("switcher", "stop", *FORWARD),
        *faults("service", "kill", "call.ask", "put.before_commit", "settle.look", "settle.wait"),
        *faults("service", "stop", "call.ask", "put.before_commit", "put.updated", "settle.look"),
        *faults("worker", "kill", "relay.claim", "relay.send", "relay.mark", "reverse.looked"),
        *faults("worker", "stop", "relay.claim", "relay.send", "relay.mark", "reverse.looked"),
        *faults("postgres", "kill", "switch.close", "switch.barrier", "relay.count", "switch.decide", "settle.open"),
        *faults("postgres", "stop", "switch.shut", "switch.decide"),
        *faults("store", "kill", "switch.shut", "settle.open"),
        *faults("store", "stop", "relay.count", "settle.open"),
    ],
    Direction.BACK: [
        *faults("switcher", "kill", *BACK),
        *faults("switcher", "stop", *BACK),
        *faults("service", "kill", "put.before_send", "put.answered", "batch.answered", "call.ask"),
        *faults("service", "stop", "put.before_send", "put.answered", "batch.before_send", "call.ask"),
        *faults("worker", "kill", "reverse.looked", "reverse.applied", "triggers.before_advance"),
        *faults("worker", "stop", "reverse.looked", "reverse.applied", "triggers.before_advance"),
        *faults("postgres", "kill", "back.close", "back.shut", "back.count", "back.decide", "settle.obey"),
        *faults("postgres", "stop", "back.count", "back.decide"),
        *faults("store", "kill", "back.close", "back.shut", "back.count"),
        *faults("store", "stop", "back.shut", "back.count"),
    ],
}


class Crowd:
    """Everybody who is at work: services, workers, whoever switches."""

    def __init__(self, moving: Migration, folder: Path) -> None:
        self.moving = moving
        self.folder = folder
        self.points = {who: folder / f"points-{who}" for who in ("switcher", "service", "worker")}
        for points in self.points.values():
            points.mkdir()
        self.writers: list[BaseProcess] = []
        self.workers: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Crowd:
        config = self.folder / "tripstore.yaml"
        config.write_text(yaml.safe_dump(dict(self.moving.document)))
        environment = {**os.environ, ENVIRONMENT_VARIABLE: str(self.points["worker"])}
        command = [str(Path(sys.executable).parent / "tripstore"), "-c", str(config), "worker", "run"]
        with (self.folder / "workers.log").open("wb") as log:
            self.workers = subprocess.Popen(
                [*command, "--only", "mirror", "--workers", "2"], env=environment, stderr=log
            )
        legacy = self.moving.legacy
        services = [self._service() for _ in range(WRITERS)]
        run = random.randrange(1_000_000)
        sql = [sql_writer(legacy.url, self.folder, f"{run}-{n}", SQL_PER_SECOND) for n in range(SQL_WRITERS)]
        self.writers = [*services, *sql]
        for writer in self.writers:
            writer.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.end_writers()
        self.end_workers()

    def end_writers(self) -> None:
        for writer in self.writers:
            end(writer)
        self.writers.clear()

    def end_workers(self) -> None:
        if self.workers is not None:
            for pid in self._worker_pids():
                os.kill(pid, signal.SIGCONT)
            self.workers.terminate()
            self.workers.wait(60)
            self.workers = None

    def _service(self) -> BaseProcess:
        points = self.points["service"]
        return facade_writer(self.moving.document, self.folder, points, PER_SECOND / WRITERS)

    def replace_dead(self) -> None:
        for number, writer in enumerate(self.writers):
            if writer.exitcode is not None:
                assert writer.exitcode == -signal.SIGKILL, "nothing else may end a service"
                assert number < WRITERS
                self.writers[number] = self._service()
                self.writers[number].start()

    def wake(self) -> None:
        """Let whoever was stopped go on."""
        for pid in [*(writer.pid for writer in self.writers), *self._worker_pids()]:
            if pid is not None and is_stopped(pid):
                os.kill(pid, signal.SIGCONT)

    def arm(self, who: str, point: str, action: str) -> Path:
        folder = self.points[who]
        (folder / f"{point}.hit").unlink(missing_ok=True)
        (folder / f"{point}.go").unlink(missing_ok=True)
        (folder / point).write_text(action)
        return folder / f"{point}.hit"

    def disarm(self) -> None:
        for folder in self.points.values():
            for point in folder.iterdir():
                if point.suffix not in (".hit", ".go"):
                    point.unlink(missing_ok=True)

    def _worker_pids(self) -> list[int]:
        assert self.workers is not None
        path = Path(f"/proc/{self.workers.pid}/task/{self.workers.pid}/children")
        return [int(pid) for pid in path.read_text().split()]


class HandOvers:
    """Authority goes to and fro."""

    def __init__(self, crowd: Crowd, postgres: PostgresServer, stores: list[BinlogServer]) -> None:
        self._crowd = crowd
        self._moving = crowd.moving
        self._postgres = postgres
        self._stores = stores
        self._asleep: Timer | None = None
        self.quiet: list[Attempt] = []
        #: Epochs of hand-overs that Postgres could not do anything about, for it was away.
        self.excused: set[int] = set()
        self.met = Counter[str]()
        self.undone = Counter[str]()

    @property
    def control(self) -> RealControlPort:
        control = self._moving.duo.ports.control
        assert isinstance(control, RealControlPort)
        return control

    def hand_over(self, fault: Fault | None) -> None:
        """To the other store, as often as it takes; the fault comes with the first attempt."""
        direction = self.direction()
        self._wait_until_close(direction)
        row = self.control.authority()
        if fault is None:
            attempt = self._attempted(direction)
            if attempt.is_decided:
                self.quiet.append(attempt)
        else:
            self._faulty(direction, fault)
        for _attempt in range(5):
            if self.control.authority().backend is direction.target:
                break
            self._wait_until_close(direction)
            self._attempted(direction)
        assert self.control.authority().backend is direction.target, row
        self._crowd.replace_dead()
        self._wait_for_answers()

    def direction(self) -> Direction:
        is_legacy = self.control.authority().backend is Backend.LEGACY
        return Direction.FORWARD if is_legacy else Direction.BACK

    def _attempted(self, direction: Direction) -> Attempt:
        attempt = Switcher(self._moving.document, self._crowd.points["switcher"], direction).outcome()
        assert attempt is not None
        if not attempt.is_decided:
            self.undone[attempt.reason] += 1
        return attempt

    def _faulty(self, direction: Direction, fault: Fault) -> None:
        crowd, epoch = self._crowd, self.control.authority().epoch
        if fault.victim in ("postgres", "store"):
            hit = crowd.arm("switcher", fault.point, "wait")
        else:
            hit = crowd.arm(fault.victim, fault.point, fault.action)
        switcher = Switcher(self._moving.document, crowd.points["switcher"], direction)
        wait_for(f"{fault} or the end", lambda: hit.exists() or switcher.process.exitcode is not None, 30)
        if hit.exists():
            self.met[f"{fault.action} {fault.victim}"] += 1
        if fault.victim in ("postgres", "store") and hit.exists():
            self._befall(random.choice(self._stores) if fault.victim == "store" else self._postgres, fault.action)
            hit.with_suffix(".go").touch()
        if fault == ("switcher", "stop", fault.point) and hit.exists():
            wait_for("it is settled by others", self._is_settled, UNDONE_SECONDS_MAX + 2)
            self._wait_for_answers()
            switcher.go_on()
        switcher.outcome()
        if self._asleep is not None:
            self._asleep.join()
        wait_for("it is settled", self._is_settled, UNDONE_SECONDS_MAX + 2)
        crowd.disarm()
        crowd.wake()
        if fault.victim == "postgres":
            self.excused.update(range(epoch, self.control.authority().epoch))

    def _befall(self, server: Server, action: str) -> None:
        """Killed, it is back at once; stopped, it is after everybody has lost patience."""
        if action == "kill":
            server.kill()
            server.start()
        else:
            server.pause()
            self._asleep = Timer(STOPPED_SECONDS, server.resume)
            self._asleep.start()

    def _is_settled(self) -> bool:
        return self.control.authority().is_open

    def _wait_until_close(self, direction: Direction) -> None:
        try:
            wait_for("the mirror is close", lambda: self._is_close(direction), 60, every_seconds=0.5)
        except AssertionError as late:
            raise AssertionError(f"{late}: {Mirror(self._moving.facade).status()}") from late

    def _is_close(self, direction: Direction) -> bool:
        """As the gates of a hand-over want it."""
        if direction is Direction.FORWARD:
            return self._moving.duo.ports.legacy.queued() < 100
        (status,) = self._moving.facade.store.triggers.status(GROUP)
        return status.lag_cells < REVERSE_CELLS_MAX and status.unknown == 0

    def _wait_for_answers(self) -> None:
        """Every service that lives was told of a write that was begun after this."""
        now = time.monotonic()
        pids = [writer.pid for writer in self._crowd.writers[:WRITERS] if not is_stopped(writer.pid)]
        wait_for("services are answered", lambda: all(_last(self._crowd.folder, pid) > now for pid in pids), 20)


def _last(folder: Path, pid: int | None) -> float:
    """When the last write was begun that a service was told of."""
    with suppress(FileNotFoundError), (folder / f"{pid}.lines").open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 10_000))
        lines = [json.loads(line) for line in file.read().split(b"\n")[1:-1]]
        return max((line.begun for line in starmap(Line, lines) if line.event == "stored"), default=0.0)
    return 0.0


def clusters_of(engine: ServerEngine, servers: LocalServers, stores: Stores) -> list[Cluster]:
    """Under the full load nobody replicates: two cores are for those who work."""
    if SCALE < 1:
        return stores.clusters(engine)
    return servers.clusters(engine, [f"{engine}-switched-{name}" for name in "ab"], replicas=0)


@contextmanager
def crowd(
    engine: ServerEngine, clusters: Sequence[Cluster], servers: LocalServers, stores: Stores, folder: Path
) -> Iterator[Crowd]:
    """A company in the phase shadow, and everybody at work."""
    options: dict[str, Any] = {"triggers": {"lease_seconds": LEASE_SECONDS}, "deadlines": DEADLINES}
    if SCALE < 1:
        options["engine"] = engine
    else:
        options["clusters"] = {
            name: {"primary": cluster.primary.url} for name, cluster in zip("ab", clusters, strict=True)
        }
    with migration(servers, stores, **options) as made:
        document = {**made.document, "legacy": {**made.document["legacy"], **LIMITS}}
        moving = replace(made, document=document)
        moving.legacy.sql(WITNESS)
        moving.legacy.sql(SAME_IDS)
        moving.phase(Phase.SHADOW)
        with Crowd(moving, folder) as everybody:
            yield everybody


def planned() -> list[Fault | None]:
    """A third of the hand-overs, which go to and fro, have an accident; everybody has his turn."""
    victims = ["switcher", "service", "worker", "postgres", "store"]
    random.shuffle(victims)
    plan: list[Fault | None] = [None] * HAND_OVERS
    for turn, number in enumerate(range(2, HAND_OVERS, 3)):
        direction = Direction.BACK if number % 2 else Direction.FORWARD
        plan[number] = random.choice([f for f in FAULTS[direction] if f.victim == victims[turn % len(victims)]])
    return plan


@pytest.mark.parametrize("engine", ENGINES)
def test_i1_i9_authority_goes_to_and_fro_under_load(
    engine: ServerEngine, servers: LocalServers, stores: Stores, tmp_path: Path
) -> None:
    clusters = clusters_of(engine, servers, stores)
    with crowd(engine, clusters, servers, stores, tmp_path) as everybody:
        moving = everybody.moving
        hands = HandOvers(everybody, moving.legacy.server, [cluster.primary for cluster in clusters])
        hands._wait_for_answers()
        behind_an_open_transaction(everybody, hands)
        begun = time.monotonic()
        for fault in planned():
            print(f"{hands.direction().value}: {fault or 'no accident'}")
            hands.hand_over(fault)
            time.sleep(REST_SECONDS)
        seconds = time.monotonic() - begun
        everybody.end_writers()
        wait_until_carried(moving)
        everybody.end_workers()
        evidence = gather(moving, tmp_path)
        check(moving, evidence)

    figures(engine, evidence, hands, seconds, errors_in(tmp_path))
    assert max(undone_seconds(evidence, hands.excused), default=0.0) < UNDONE_SECONDS_MAX


@pytest.fixture(params=[ENGINES[0]])
def controlled(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    """In the phase dualwrite, where nobody works but the test."""
    with migration(servers, stores, engine=request.param, deadlines=DEADLINES) as made:
        made.legacy.sql(WITNESS)
        made.phase(Phase.DUALWRITE)
        yield made


@pytest.mark.parametrize("controlled", ["sqlite"], indirect=True)
@pytest.mark.parametrize("sabotage", ["", "marks before it sends"])
def test_i8_a_relay_that_is_killed_before_it_sends_has_marked_nothing(
    controlled: Migration, failpoints: Path, tmp_path: Path, sabotage: str
) -> None:
    """And the control: the rules find what a relay loses that marks first."""
    controlled.legacy.trip()
    (failpoints / "relay.send").write_text("kill")
    with running([relay(controlled.document, failpoints, sabotage)]):
        wait_for("it died", (failpoints / "relay.send.hit").exists, 20)
    controlled.legacy.trip()
    wait_for("the claim ran out", lambda: _carried(controlled), 20)

    found = broken(controlled, gather(controlled, tmp_path))
    assert bool(found) is bool(sabotage), found


def _carried(moving: Migration) -> bool:
    moving.carry()
    return moving.duo.ports.legacy.queued() == 0


#: Who does what he must not.
SABOTAGES = {"nobody": ("", ""), "switcher": ("opens without a look", ""), "service": ("", "no fences")}
#: Rules that see it.
FOUND = {"a write of Schemaless outside its epoch", "the stores differ", "the latest differ"}


@pytest.mark.parametrize(("of_switcher", "of_service"), SABOTAGES.values(), ids=SABOTAGES.keys())
def test_i9_who_comes_late_opens_nothing_and_writes_nothing(
    controlled: Migration, tmp_path: Path, of_switcher: str, of_service: str
) -> None:
    """A switcher is stopped before it opens, a service before it puts; both go on when Postgres is it again."""
    folders = [tmp_path / name for name in ("switcher", "service")]
    for folder in folders:
        folder.mkdir()
    (folders[0] / "settle.open").write_text("stop")
    switcher = Switcher(controlled.document, folders[0], Direction.FORWARD, of_switcher)
    with closing(Service(controlled.document, folders[1], of_service)) as service:
        wait_for("it has decided", lambda: is_stopped(switcher.process.pid), 20)
        controlled.duo.watch.look()  # others open
        controlled.store.put_cell(uuid4(), "BASE", 1, {"status": "early"})
        service.call("get_row", uuid4())
        service.stop_at("call.ask")
        service.begin("put_cell", uuid4(), "BASE", 1, {"status": "late"})
        service.wait_until_stopped("call.ask")
        controlled.reverse()
        switcher.go_on()
        switcher.outcome()
        service.go_on()
        service.result()
    controlled.carry()

    found = broken(controlled, gather(controlled, tmp_path))
    assert set(found) == (FOUND if of_switcher or of_service else set()), found


def behind_an_open_transaction(everybody: Crowd, hands: HandOvers) -> None:
    """A switch does not finish over it, and services go on."""
    moving = everybody.moving
    _id, row_key = moving.legacy.trip()
    with closing(moving.legacy.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("UPDATE trips SET status = 'long' WHERE trip_uuid = %s", (str(row_key),))
        until = time.monotonic() + OPEN_SECONDS
        refused = 0
        while time.monotonic() < until:
            attempt = Switcher(moving.document, everybody.points["switcher"], Direction.FORWARD).outcome()
            assert attempt is not None
            assert not attempt.is_decided
            assert "writers stay inside" in attempt.reason
            refused += 1
            hands._wait_for_answers()
            time.sleep(REST_SECONDS)
        connection.commit()
    assert refused
    assert hands.control.authority().backend is Backend.LEGACY


def wait_until_carried(moving: Migration) -> None:
    ports, store = moving.duo.ports, moving.facade.store
    wait_for("the queue is empty", lambda: ports.legacy.queued() == 0, 60)
    wait_until_caught_up(store, GROUP, 60)
    if ports.control.authority().backend is Backend.STORE:
        wait_for("the queue is empty", lambda: ports.legacy.queued() == 0, 60)


def figures(
    engine: str, evidence: Evidence, hands: HandOvers, seconds: float, errors: Mapping[tuple[str, str], int]
) -> None:
    stored = sum(1 for _ in evidence.acknowledged())
    events = Counter(line.event for line in evidence.lines)
    refused = sum(count for (_isolation, what), count in errors.items() if what == GATE_SHUT)
    gaps = sorted(pauses(evidence, hands.quiet))
    undone = undone_seconds(evidence, hands.excused)
    print(
        f"{engine}: {stored:,} writes in {seconds:.0f} s, {len(evidence.witnesses):,} by SQL and {refused:,} refused;"
        f" {len(hands.quiet)} hand-overs without an accident, pause p50 {_share(gaps, 0.5):.0f} ms,"
        f" p99 {_share(gaps, 0.99):.0f} ms; accidents {dict(hands.met)}; {len(undone)} undone after"
        f" {max(undone, default=0):.1f} s at most; {dict(events)}; {dict(hands.undone)}"
    )
    if SCALE >= 1:
        assert _share(gaps, 0.99) < PAUSE_SECONDS_MAX * 1000


def pauses(evidence: Evidence, attempts: list[Attempt]) -> Iterator[float]:
    """For each service the longest time between two answers around each hand-over, in milliseconds."""
    answered = defaultdict[int, list[float]](list)
    for line in evidence.lines:
        answered[line.pid].append(line.ended)
    for attempt in attempts:
        for times in answered.values():
            near = times[bisect_left(times, attempt.begun - 0.5) : bisect_right(times, attempt.ended + 1.0)]
            if near and near[0] < attempt.begun and near[-1] > attempt.ended:
                yield 1000 * max(later - earlier for earlier, later in pairwise(near))


def undone_seconds(evidence: Evidence, excused: set[int]) -> list[float]:
    """How long each hand-over was closing that was undone then."""
    rows = evidence.rows
    return [
        (after.since - row.since).total_seconds()
        for row, after in (
            (row, rows.get(row.epoch + 1)) for row in rows.values() if not row.is_open and row.epoch not in excused
        )
        if after is not None and after.backend is row.backend and after.since is not None and row.since is not None
    ]


def _share(ordered: list[float], share: float) -> float:
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else 0.0
