"""The traffic of a kept playground: its services read and write for a while, so that the gates have numbers to go by.

Reads go through the facade, which replays each at the other store. As long as Postgres is the authority, services write
by SQL, too.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from itertools import cycle, islice
from pathlib import Path

import msgspec

from tripstore.config import load_config
from tripstore.demo.company import row_keys
from tripstore.demo.migration import WAIT_SECONDS, is_carried, read
from tripstore.demo.playground import CONFIG, POSTGRES_FOLDER, Playground
from tripstore.demo.rewriting import MENDED, receipts, with_tip
from tripstore.demo.services import services
from tripstore.engines.validation.verdicts import Outcome
from tripstore.errors import TripstoreError
from tripstore.handover.authority import Backend
from tripstore.local.dev import DevFolder
from tripstore.migration.mirror.mirror import Mirror
from tripstore.store import TripStore

#: Trips that are read one after the other; then their comparisons are waited for.
ROUND_TRIPS = 20
#: Of services that write: a comparison is told where its row rests for the time that the mirror takes.
SERVICE_PAUSE_SECONDS = 0.2
SEED = 6
#: For a worker that has just been started, and for what it has to carry.
WORKER_SECONDS = 60.0
POLL_SECONDS = 0.1


class TrafficDone(msgspec.Struct, frozen=True):
    """The JSON document of `demo --traffic`."""

    seconds: float
    trips_read: int
    transactions: int
    compared: int
    mismatches: int
    not_compared: int


def make_traffic(folder: Path, seconds: float) -> TrafficDone:
    """Have services use the playground in this folder for so long."""
    place = _playground((folder / CONFIG).absolute())
    with receipts(place) as service, ExitStack() as writing:
        duo = service.store.facade.duo
        assert duo is not None, "a playground has two stores"
        _await_worker(service.store)
        begun, trips = time.monotonic(), 0
        tally = (
            writing.enter_context(services(place.company, SEED, SERVICE_PAUSE_SECONDS))
            if _is_postgres(service.store)
            else None
        )
        keys = cycle(row_keys(place.company))
        while time.monotonic() - begun < seconds:
            some = list(islice(keys, ROUND_TRIPS))
            read(service.store, some)
            service.ask(MENDED, with_tip, some)
            trips += len(some)
        writing.close()
        transactions = 0 if tally is None else tally.committed
        duo.shadow.drain(WAIT_SECONDS)
        found = {outcome: duo.tally.total(outcome) for outcome in Outcome}
    return TrafficDone(
        seconds=round(time.monotonic() - begun, 1),
        trips_read=trips,
        transactions=transactions,
        compared=sum(found.values()) - found[Outcome.NOT_COMPARED],
        mismatches=found[Outcome.MISMATCH],
        not_compared=found[Outcome.NOT_COMPARED],
    )


def _playground(file: Path) -> Playground:
    """Refuses every other configuration: nothing of this is for the tables of a real company."""
    legacy = load_config(file).legacy
    held = DevFolder(file.parent / POSTGRES_FOLDER).find()
    urls = [] if held is None else [server.url for server in held.servers if server.role == "postgres"]
    for url in urls:
        place = Playground("sqlite", file, url)
        if legacy is not None and legacy.postgres.text == place.company:
            return place
    hint = "`tripstore demo --keep` leaves one: call this in its folder, or beside it, while its Postgres is up."
    raise TripstoreError(f"{file} is not the configuration of a playground that is up.", hint=hint)


def _await_worker(store: TripStore) -> None:
    """Nothing can be told of a row whose last change no worker has carried."""
    until = time.monotonic() + WORKER_SECONDS
    while not is_carried(store):
        if time.monotonic() > until:
            advice = "; ".join(Mirror(store.facade).status().advice())
            hint = (
                advice or "`tripstore worker run` does, in a second shell; `tripstore mirror status` says what waits."
            )
            raise TripstoreError(f"For {WORKER_SECONDS:.0f} s no worker has carried all changes.", hint=hint)
        time.sleep(POLL_SECONDS)  # a worker is another process, and nothing tells when it has caught up


def _is_postgres(store: TripStore) -> bool:
    duo = store.facade.duo
    assert duo is not None, "a playground has two stores"
    duo.watch.look()
    sight = duo.known.sight
    return sight is not None and sight.authority.backend is Backend.LEGACY
