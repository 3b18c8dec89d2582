"""Standbys for tests: followed in this process, and what both datastores hold, to compare them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from schemaless_core import Datastore, failpoints
from schemaless_core.control.jobs.records import Job, JobState
from schemaless_core.failpoints import FailpointReached
from schemaless_core.replication.ports import StandbyState
from schemaless_core.replication.replication import FollowOrder, Replication
from schemaless_core.replication.runner import FollowRunner
from tests.backups import logs_of
from tests.chaos.actors import wait_until

FROM = "the one that leads"


def begun(standby: Datastore, other: Datastore) -> Job:
    """A job that no process works at yet."""
    replication = standby.replication(other)
    plan = replication.plan(FollowOrder(FROM))
    assert plan.refusals == (), plan.refusals
    return replication.begin(plan)


class Follower:
    """A thread that follows."""

    def __init__(self, replication: Replication, job: Job, name: str = "follower") -> None:
        self.runner: FollowRunner = replication.runner(job, name)
        self.ended: JobState | BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name)

    def _run(self) -> None:
        try:
            self.ended = self.runner.run()
        except BaseException as error:  # noqa: BLE001  # the test looks at it
            self.ended = error

    def __enter__(self) -> Follower:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.runner.stop()
        self._thread.join()


@contextmanager
def dying_at(point: str) -> Iterator[None]:
    """Once, a thread dies of a failpoint, whichever comes to it."""
    pending, lock, others = [point], threading.Lock(), failpoints._look

    def look(folder: Path, name: str) -> None:
        others(folder, name)
        with lock:
            is_it = name in pending and bool(pending.pop())
        if is_it:
            raise FailpointReached(name)

    with patch.object(failpoints, "_look", look), patch.object(failpoints, "_folder", Path()):
        yield
    assert not pending, f"{point} was not reached"


@contextmanager
def following(standby: Datastore, other: Datastore) -> Iterator[Follower]:
    """A standby that is followed while the block runs."""
    job = begun(standby, other)
    with Follower(standby.replication(other), job) as follower:
        yield follower
    assert not isinstance(follower.ended, BaseException), follower.ended


def behind(standby: Datastore, other: Datastore) -> int | None:
    """Cells that the standby lacks; None: that is not known, or it brings what it alone has."""
    if standby.replication(other).record.find().standby.state is StandbyState.RETURNS:
        return None
    # Shards that have no copy yet lack nothing of a log that is empty.
    if len(standby.replication(other).own_ends()) < standby.config.shards:
        return None
    lags = standby.replication(other).lag()
    if len(lags) < standby.config.shards or any(lag.behind is None for lag in lags):
        return None
    return sum(lag.behind or 0 for lag in lags)


def wait_until_whole(standby: Datastore, other: Datastore) -> None:
    wait_until("the standby has all cells", lambda: behind(standby, other) == 0, 120)


def promoted(standby: Datastore, other: Datastore, *, is_forced: bool = False) -> int:
    """The epoch at which it leads."""
    return standby.replication(other).promote(is_forced=is_forced)


def copied_logs(standby: Datastore) -> dict[int, list[tuple[object, ...]]]:
    """The logs of copies, which no call reads, as `logs_of` has those of shards."""
    replication = standby.replication(standby)
    return {
        shard: [tuple(cell) for cell in each.end.page(shard, 0, 100_000).slice.cells]
        for shard, each in replication.own_ends().items()
    }


__all__ = ["Follower", "begun", "behind", "copied_logs", "following", "logs_of", "promoted", "wait_until_whole"]
