"""The company's services at their own pace: as busy as a demo that runs beside them on a laptop can bear."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import psycopg2
from sqlalchemy.exc import SQLAlchemyError

from tripstore.demo.legacy.tally import WorkTally
from tripstore.demo.legacy.worker import sqlstate
from tripstore.demo.legacy.workload import Workload

PAUSE_SECONDS = 0.02


@contextmanager
def services(company: str, seed: int, pause: float = PAUSE_SECONDS) -> Iterator[WorkTally]:
    """They work as long as the block lasts: ORM, Core, COPY and raw SQL. The tally is whole when it has ended."""
    ended, tally = threading.Event(), WorkTally()
    thread = threading.Thread(target=_work, args=(company, seed, pause, tally, ended), name="services")
    thread.start()
    try:
        yield tally
    finally:
        ended.set()
        thread.join()


def _work(company: str, seed: int, pause: float, tally: WorkTally, ended: threading.Event) -> None:
    random = Random(seed)
    with Workload(company) as workload:
        while not ended.wait(pause):
            try:
                tally.count(workload.step(random))
            except (psycopg2.Error, SQLAlchemyError) as error:
                tally.count_failure("step", sqlstate(error) or type(error).__name__, str(error).strip())
