"""The authority goes to and fro between both stores while a crowd is at work, with accidents and without."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path
from threading import Timer

from tests.chaos.switch_actors import Attempt, Switcher, is_stopped
from tests.chaos.switch_crowd import Crowd, wait_for
from tests.chaos.switch_faults import Fault
from tests.chaos.switch_journal import last_begun
from tests.chaos.switch_rules import Evidence, check, gather
from tests.crew import wait_until_caught_up
from tests.fscks import found_in
from tests.scale import SCALE
from tripstore.handover.authority import Backend
from tripstore.local.binlog import BinlogServer
from tripstore.local.postgres import PostgresServer
from tripstore.local.server import Server
from tripstore.migration.cutover.plan import Direction
from tripstore.migration.mirror.mirror import Mirror
from tripstore.migration.mirror.reverse import GROUP
from tripstore.ports.control import MAX_PAUSE_SECONDS, RealControlPort
from tripstore.thresholds import CutoverSettings

#: A server that stops is away for longer than a hand-over may take.
STOPPED_SECONDS = MAX_PAUSE_SECONDS + 1.0
GATES = CutoverSettings()
#: From here on a way back is tried; under the full load what the gate allows: offsets are saved now and then.
REVERSE_CELLS_MAX = GATES.lag_changes_max if SCALE >= 1 else 50
#: Its own clock begins when a process first sees it, which it looks for twice a second.
UNDONE_SECONDS_MAX = MAX_PAUSE_SECONDS + 2.0


class HandOvers:
    """Authority goes to and fro."""

    def __init__(self, crowd: Crowd, postgres: PostgresServer, stores: list[BinlogServer]) -> None:
        self._crowd = crowd
        self._moving = crowd.moving
        self._postgres = postgres
        self._stores = stores
        self._asleep: Timer | None = None
        #: Hand-overs without an accident, decided or undone.
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

    def hand_over(self, fault: Fault | None) -> bool:
        """To the other store, as often as it takes; the fault comes with the first attempt. Whether it came."""
        direction = self.direction()
        self._wait_until_close(direction)
        row = self.control.authority()
        is_met = fault is not None and self._faulty(direction, fault)
        if fault is None:
            self.quiet.append(self._attempted(direction))
        for _attempt in range(5):
            if self.control.authority().backend is direction.target:
                break
            self._wait_until_close(direction)
            attempt = self._attempted(direction)
            if fault is None:
                self.quiet.append(attempt)
        assert self.control.authority().backend is direction.target, row
        self._crowd.replace_dead()
        self.wait_for_answers()
        return is_met

    def direction(self) -> Direction:
        is_legacy = self.control.authority().backend is Backend.LEGACY
        return Direction.FORWARD if is_legacy else Direction.BACK

    def wait_for_answers(self) -> None:
        """Every service that lives was told of a write that was begun after this."""
        now = time.monotonic()
        pids = [writer.pid for writer in self._crowd.services if not is_stopped(writer.pid)]
        wait_for("services are answered", lambda: all(last_begun(self._crowd.folder, pid) > now for pid in pids), 20)

    def wait_until_carried(self) -> None:
        """To be called when all writers have ended."""
        ports, store = self._moving.duo.ports, self._moving.facade.store
        wait_for("the queue is empty", lambda: ports.legacy.queued() == 0, 60)
        wait_until_caught_up(store, GROUP, 60)
        if ports.control.authority().backend is Backend.STORE:
            wait_for("the queue is empty", lambda: ports.legacy.queued() == 0, 60)

    def end(self, folder: Path) -> Evidence:
        """Have everybody finish, and hold what they noted against both stores."""
        self._crowd.end_writers()
        self.wait_until_carried()
        self._crowd.end_workers()
        evidence = gather(self._moving, folder)
        check(self._moving, evidence)
        faults = found_in(self._moving.facade.store)
        assert faults == [], faults
        return evidence

    def _attempted(self, direction: Direction) -> Attempt:
        attempt = Switcher(self._moving.document, self._crowd.points["switcher"], direction).outcome()
        assert attempt is not None
        if not attempt.is_decided:
            self.undone[attempt.reason] += 1
            print(f"undone: {attempt.reason}")
        return attempt

    def _faulty(self, direction: Direction, fault: Fault) -> bool:
        crowd, epoch = self._crowd, self.control.authority().epoch
        if fault.victim in ("postgres", "store"):
            hit = crowd.arm("switcher", fault.point, "wait")
        else:
            hit = crowd.arm(fault.victim, fault.point, fault.action)
        switcher = Switcher(self._moving.document, crowd.points["switcher"], direction)
        wait_for(f"{fault} or the end", lambda: hit.exists() or switcher.process.exitcode is not None, 30)
        is_met = hit.exists()
        if is_met:
            self.met[f"{fault.action} {fault.victim}"] += 1
        if fault.victim in ("postgres", "store") and is_met:
            self._befall(random.choice(self._stores) if fault.victim == "store" else self._postgres, fault.action)
            hit.with_suffix(".go").touch()
        if fault == ("switcher", "stop", fault.point) and is_met:
            wait_for("it is settled by others", self._is_settled, UNDONE_SECONDS_MAX + 2)
            self.wait_for_answers()
            switcher.go_on()
        switcher.outcome()
        if self._asleep is not None:
            self._asleep.join()
        wait_for("it is settled", self._is_settled, UNDONE_SECONDS_MAX + 2)
        crowd.disarm()
        crowd.wake()
        if fault.victim == "postgres":
            self.excused.update(range(epoch, self.control.authority().epoch))
        return is_met

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
        """As the gates of a hand-over want it: who was killed leaves shards that no worker serves for some seconds."""
        status = Mirror(self._moving.facade).status()
        forward, reverse = status.forward, status.reverse
        if direction is Direction.FORWARD:
            return forward is not None and forward.changes < 100 and forward.seconds <= GATES.lag_seconds_max
        if reverse is None or reverse.unserved or reverse.unknown:
            return False
        return reverse.cells < REVERSE_CELLS_MAX and reverse.seconds <= GATES.lag_seconds_max
