"""The hand-overs: the gates pass, authority moves while a service puts, comes back, and moves again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any
from uuid import UUID

import psycopg2

from schemaless_core.errors import Unavailable
from tripstore.backends.postgres.wire.connections import connected, rows
from tripstore.demo.commands import Commands
from tripstore.demo.company import row_keys
from tripstore.demo.legacy.workload import Workload
from tripstore.demo.migration import compare_reads, is_carried, wait_until
from tripstore.demo.playground import Playground
from tripstore.demo.repairs import compare_everything
from tripstore.demo.report import StoryStep
from tripstore.demo.rewriting import compare_the_rewrite
from tripstore.store import TripStore

#: A hand-over that a busy machine does not end within its pause is undone, and tried again.
ATTEMPTS = 10
#: Changes that the mirror may lack when a hand-over begins: the switcher carries them itself.
CLOSE = 100
RIDE_SECONDS = 0.01
#: A call that misses its deadline is repeated, as a service would, for so long.
REPEAT_SECONDS = 30.0
#: How long what is counted may take to arrive in the ledgers.
GATES_SECONDS = 300.0

_TOUCH = "UPDATE public.trips SET fare_amount = 1 WHERE trip_uuid = %s"
_VERSION = "SELECT base_version FROM public.trips WHERE trip_uuid = %s"


def verify_indexes(step: StoryStep, store: TripStore) -> None:
    """Every entry is held against the cells."""
    datastore = store.facade.store
    for definition in datastore.config.indexes:
        found = datastore.indexes.verify(definition.name)
        said = f"{found.entries:,} entries, {found.rows:,} rows"
        step.check(f"{definition.name} says what the cells say", found.is_clean, said)


def ask_the_gates(step: StoryStep, commands: Commands, store: TripStore) -> None:
    """All of them pass, and no gate is forced."""
    wait_until("the mirror has everything", lambda: is_carried(store))
    until = time.monotonic() + GATES_SECONDS
    planned = _plan(commands)
    while not planned["is_allowed"] and time.monotonic() < until:
        planned = _plan(commands)
    for gate in planned["gates"]:
        if gate["name"].startswith(("backfill", "diff", "comparisons", "rehearsal", "mirror lag", "experiment")):
            step.say(f"{gate['name']}: {gate['said']}")
    refusing = [f"{gate['name']}: {gate['said']}" for gate in planned["gates"] if not gate["is_passed"]]
    detail = "; ".join(refusing) or f"{len(planned['gates'])} gates, none forced"
    step.check("all gates pass", planned["is_allowed"], detail)


def switch(step: StoryStep, place: Playground, commands: Commands, store: TripStore) -> None:
    """Schemaless becomes the authority while a service puts."""
    with riding(step, store, place.company):
        done = _hand_over("switch", commands, store)
    step.say(f"Schemaless is the authority; writers waited for {_milliseconds(done)}")
    step.check("the switch is decided", done["is_decided"], done["reason"] or f"epoch {done['epoch']}")
    key = row_keys(place.company)[0]
    with connected(place.company, "demo") as connection:
        try:
            rows(connection, _TOUCH, (str(key),))
            refused = "it was written"
        except psycopg2.Error as error:
            refused = str(error.diag.message_primary)
    step.check("direct SQL is refused", "shut off" in refused, refused)
    latest = store.get_cell_latest(key, "BASE")
    assert latest is not None
    assert isinstance(latest.body, dict)
    store.put_cell(key, "BASE", latest.ref_key + 1, {**latest.body, "fare": "77.00"})
    wait_until("a put at Schemaless is in the tables", lambda: _version(place.company, key) == latest.ref_key + 1)
    step.check("a put at Schemaless arrives in the tables", True, f"version {_version(place.company, key)}")


def reverse(step: StoryStep, place: Playground, commands: Commands, store: TripStore) -> None:
    """Postgres is the authority again, with all that was written since, and services write as before."""
    with riding(step, store, place.company):
        done = _hand_over("reverse", commands, store)
    step.say(f"Postgres is the authority again; writers waited for {_milliseconds(done)}")
    step.check("the way back is decided", done["is_decided"], done["reason"] or f"epoch {done['epoch']}")
    tally = Workload(place.company, seed=5).run(actions=30)
    step.check("services write again", tally.failed == 0, tally.first_failure or f"{tally.committed} transactions")


def switch_again(step: StoryStep, place: Playground, commands: Commands, store: TripStore) -> None:
    """What was compared before the way back speaks for no other switch: it is compared anew."""
    wait_until("the mirror has everything", lambda: is_carried(store))
    compare_everything(step, commands, "tripstore diff start")
    compare_reads(step, place)
    compare_the_rewrite(step, place)
    with riding(step, store, place.company):
        done = _hand_over("switch", commands, store)
    step.say(f"writers waited for {_milliseconds(done)}")
    step.check("the switch is decided", done["is_decided"], done["reason"] or f"epoch {done['epoch']}")


@contextmanager
def riding(step: StoryStep, store: TripStore, company: str) -> Iterator[None]:
    """A service appends to a trip as long as the block lasts; then it is said how that went."""
    seconds: list[float] = []
    failures: list[str] = []
    missed: list[str] = []
    ended, key = threading.Event(), row_keys(company)[1]

    def ride() -> None:
        while not ended.is_set():
            begun = time.perf_counter()
            try:
                repeated(lambda: store.append_cell(key, "RIDES", {"event": len(seconds)}), missed)
            except Exception as error:  # noqa: BLE001  # counted and shown: whatever a caller would see
                failures.append(f"{type(error).__name__}: {error}")
            seconds.append(time.perf_counter() - begun)
            ended.wait(RIDE_SECONDS)

    thread = threading.Thread(target=ride, name="rides")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    middle, longest = median(seconds) * 1000, max(seconds) * 1000
    step.say(f"{len(seconds):,} puts of a service meanwhile, p50 {middle:.1f} ms, longest {longest:.0f} ms")
    step.check("no call of the service failed", not failures, "; ".join(failures[:1]) or "none")
    step.measure(
        "no call missed its deadline", not missed, f"{len(missed)} were repeated: {missed[0]}" if missed else "none"
    )


def repeated(call: Callable[[], object], missed: list[str], seconds: float = REPEAT_SECONDS) -> None:
    """Make a call until it is answered; what it says until then is noted. Errors but `Unavailable` are the caller's."""
    until = time.monotonic() + seconds
    while True:
        try:
            call()
        except Unavailable as error:
            if time.monotonic() >= until:
                raise
            missed.append(f"{type(error).__name__}: {error}")
        else:
            return


def _hand_over(verb: str, commands: Commands, store: TripStore) -> Any:
    """It may be undone when a writer stays inside; then it is tried again, as a person would."""
    for _attempt in range(ATTEMPTS):
        wait_until("the mirror is close", lambda: is_carried(store, CLOSE))
        ran = commands.run(f"tripstore cutover {verb} --yes --why 'the demo'", codes=(0, 1, 4))
        if ran.code == 0:
            break
    if ran.code == 4:
        refusing = [f"{gate['name']}: {gate['said']}" for gate in ran.document["gates"] if not gate["is_passed"]]
        return {"is_decided": False, "reason": "; ".join(refusing), "epoch": 0, "pause_seconds": None}
    return ran.document


def _plan(commands: Commands) -> Any:
    return commands.run("tripstore cutover plan", codes=(0, 4)).document


def _version(company: str, key: UUID) -> int:
    with connected(company, "demo") as connection:
        return int(rows(connection, _VERSION, (str(key),))[0][0])


def _milliseconds(done: Any) -> str:
    pause = done["pause_seconds"]
    return "no time" if pause is None else f"{pause * 1000:.0f} ms"
