"""Damage is done to the mirror, found by a diff, and mended by a repair, each cell by what it lacks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple
from uuid import UUID

from tripstore.demo.commands import Commands
from tripstore.demo.company import row_keys
from tripstore.demo.corruption import corrupt
from tripstore.demo.migration import is_carried, wait_until
from tripstore.demo.playground import Playground
from tripstore.demo.report import StoryStep
from tripstore.store import TripStore

CHANGED, LOST = 2, 1
LAST_DIFF = "tripstore diff start --from schemaless --to postgres"


class Damage(NamedTuple):
    """Whose BASE was changed, and whose is gone."""

    changed: tuple[UUID, ...]
    lost: tuple[UUID, ...]


def damage_and_find(step: StoryStep, place: Playground, commands: Commands, store: TripStore) -> None:
    """The diff finds exactly what was damaged."""
    wait_until("the mirror has everything", lambda: is_carried(store))
    keys = _with_one_version(store, row_keys(place.company))
    damage = Damage(tuple(keys[:CHANGED]), tuple(keys[CHANGED:]))
    corrupt(store.facade.store, damage.changed, damage.lost)
    begun = time.perf_counter()
    done = commands.run("tripstore diff start", codes=(1,)).document
    step.say(f"{CHANGED} cells were changed and {LOST} was deleted by SQL on the mirror's own server")
    step.say(f"{done['cells']['equal']:,} cells are equal; compared in {time.perf_counter() - begun:.1f} s")
    found = commands.run("tripstore diff show", codes=(1,)).document["differences"]
    cells = [each for each in found if each["column"] is not None and not each["seen_by"]]
    for each in cells:
        step.say(f"{each['kind']} {each['row_key']}/{each['column']} {each['path']}")
    seen = {(UUID(each["row_key"]), each["kind"]) for each in cells}
    wanted = {(key, "differs") for key in damage.changed} | {(key, "missing") for key in damage.lost}
    step.check("the diff finds exactly these", seen == wanted, f"{len(seen)} found, {len(wanted)} damaged")


def repair(step: StoryStep, commands: Commands, store: TripStore) -> None:
    """Mend what was found, and compare everything again."""
    planned = commands.run("tripstore repair --dry-run", codes=(1,)).document
    for each in planned["steps"]:
        step.say(f"{each['action']} {each['row_key']}/{each['column']}: {each['why']}")
    done = commands.run("tripstore repair --yes").document
    step.check("what was damaged is repaired", not done["left"], f"{done['equal']:,} cells are equal again")
    wait_until("the mirror has everything", lambda: is_carried(store))
    compare_everything(step, commands, "tripstore diff start")


def compare_everything(step: StoryStep, commands: Commands, line: str = LAST_DIFF) -> None:
    """Both stores, cell by cell."""
    done = commands.run(line, codes=(0, 1, 3)).document
    cells = done["cells"]
    detail = f"{cells['equal']:,} cells, {done['open']} different, {cells['not_compared']} not compared"
    step.check("both stores are equal", done["is_equal"], detail)


def _with_one_version(store: TripStore, keys: Sequence[UUID]) -> list[UUID]:
    """Trips that were not changed since: what an older version was, Postgres may not know any more."""
    mirror = store.facade.store
    once = (key for key in keys if len(mirror.get_history(key, "BASE", limit=2)) == 1)
    return list(islice(once, CHANGED + LOST))
