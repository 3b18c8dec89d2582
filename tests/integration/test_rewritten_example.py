"""The example company's own services: how much of them is rewritten, and that what is does what it did."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import ModuleType
from typing import NamedTuple
from uuid import UUID

import pytest

from schemaless_core.cell.canonical import Json
from schemaless_core.cell.standing import ShardStatus
from schemaless_core.definitions.index import load_definitions
from tests.facades import PATIENT_LEGACY, Migration
from tests.legacy import Legacy, apply
from tests.legacy_databases import FLAVOURS, postgres_server
from tests.stores import Stores
from tripstore.audit.rewrite.rewriting import rewrite_code
from tripstore.audit.rewrite.verdicts import CodeRewrite, RewriteAssumption, RewriteVerdict
from tripstore.audit.rewrite.wishes import RewriteWishes
from tripstore.backends.postgres.layout.layout import VERSION_BITS
from tripstore.backends.postgres.layout.reading import load_layout
from tripstore.backends.postgres.schema_steps import schema_steps
from tripstore.config import load_config
from tripstore.demo.legacy import INDEXES, LAYOUT
from tripstore.demo.legacy.actions import ACTIONS, LegacyAction
from tripstore.demo.legacy.roles import create_roles
from tripstore.demo.legacy.schema import CompanySchema
from tripstore.demo.legacy.seeding import Seeds
from tripstore.demo.legacy.turns import ServiceHabits
from tripstore.demo.legacy.worker import CompanyWorker, WorkOutcome
from tripstore.local.servers import LocalServers
from tripstore.migration.mirror.reverse import register_reverse
from tripstore.phase import Phase
from tripstore.store import TripStore
from tripstore.wiring import build

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "audit-rewrite.md"
STORES = "rewritten_example_stores"
#: Actions with a use that is rewritten; each is run below.
REWRITTEN = (
    "billing.bill_trip_at_once",
    "billing.take_tip",
    "deletes.delete_adjustment",
    "isolation.raise_fare",
    "orm.append_note",
    "orm.approve_adjustment",
    "orm.edit_note",
    "orm.propose_adjustment",
    "quiet.assign_the_same",
    "raw.start_trip",
    "raw.swap_drivers",
    "support.add_to_note",
    "support.rewrite_note",
    "upserts.insert_attempt_unless_there",
    "upserts.upsert_adjustment",
)
#: Inserts a fact unless it is there.
ONCE = "upserts.insert_attempt_unless_there"
CHILDREN = ("NOTES", "ADJUSTMENTS")
#: Bodies by column and, of children, by number; those that are gone are None.
TripState = dict[tuple[str, int], tuple[int, Json]]


@pytest.fixture(scope="module")
def rewritten() -> CodeRewrite:
    definitions = load_definitions(str(INDEXES), INDEXES.parent, "trips")
    # Their contexts commit at the end, unless the worker gives up, which it does not here.
    wishes = RewriteWishes(f"{STORES}:cells", ("session", "cursor", "core"), tuple(RewriteAssumption), False)
    return rewrite_code(LAYOUT.parent, load_layout(LAYOUT, "trips"), definitions, (), wishes)


def test_the_page_says_how_much_of_the_example_is_rewritten_and_each_other_use_has_a_reason(
    rewritten: CodeRewrite,
) -> None:
    done, left = rewritten.count(RewriteVerdict.REWRITTEN), rewritten.count(RewriteVerdict.LEFT)

    assert f"{done} of {done + left} uses" in PAGE.read_text()
    assert all(each.reason and each.advice for each in rewritten.uses if each.verdict is RewriteVerdict.LEFT)
    files = {each.use.file for each in rewritten.uses if each.verdict is RewriteVerdict.REWRITTEN}
    assert files == {f"actions/{name.partition('.')[0]}.py" for name in REWRITTEN}


class Example(NamedTuple):
    moved: Migration
    worker: CompanyWorker

    def state(self, trip: int) -> TripState:
        """The latest cells of a trip: ref key and body."""
        store, row_key = self.moved.store, self._row_key(trip)
        base = store.get_cell_latest(row_key, "BASE")
        assert base is not None
        found: TripState = {("BASE", 0): (base.ref_key, base.body)}
        for column in CHILDREN:
            for cell in reversed(store.get_history(row_key, column)):
                found[column, cell.ref_key >> VERSION_BITS] = (cell.ref_key, cell.body)
        return found

    def facts(self) -> dict[int, dict[int, Json]]:
        """By trip, the attempts to bill it by number."""
        found = {}
        for (trip,) in self.moved.legacy.sql("SELECT id FROM trips"):
            cells = self.moved.store.get_history(self._row_key(trip), "STATUS")
            found[trip] = {cell.ref_key: cell.body for cell in cells}
        return found

    def put_back(self, trip: int, before: TripState) -> None:
        """What a call changed is put again, as a version above its."""
        for key, (ref_key, body) in self.state(trip).items():
            known = before[key][1] if key in before else None
            if known != body:
                self.moved.store.put_cell(self._row_key(trip), key[0], ref_key + 1, known)

    def _row_key(self, trip: int) -> UUID:
        row_key = self.moved.store.resolve_id(trip)
        assert row_key is not None
        return row_key


@pytest.fixture(scope="module")
def example(servers: LocalServers, stores: Stores) -> Iterator[Example]:
    """The company, captured from its first row on, and a store."""
    legacy, layout = Legacy(postgres_server(servers, FLAVOURS["postgres"]), tables="SELECT 1"), load_layout(LAYOUT)
    CompanySchema(legacy.url).upgrade()
    create_roles(legacy.url)
    with legacy.ours() as connection:
        apply(schema_steps(layout), connection)
    Seeds(legacy.url, users=12).plant(20)
    options = {"postgres": legacy.url, "layout": layout.to_document(), **PATIENT_LEGACY}
    document = {**stores.config("sqlite", shards=4), "datastore": "trips", "legacy": options}
    with TripStore(build(load_config(document))) as store:
        store.facade.store.create_schema(status=ShardStatus.COPY)
        register_reverse(store.facade.store)
        moved = Migration(store, legacy, document)
        moved.phase(Phase.SHADOW)
        store.facade.begin()
        moved.duo.watch.close()
        moved.carry()
        with CompanyWorker(legacy.url, ServiceHabits(rollback_ratio=0.0)) as worker:
            yield Example(moved, worker)


@pytest.fixture(scope="module")
def actions(example: Example, rewritten: CodeRewrite) -> Iterator[dict[str, LegacyAction]]:
    """The rewritten actions by name."""
    store = ModuleType(STORES)
    store.cells = example.moved.store  # type: ignore[attr-defined]  # a module of the test
    sys.modules[STORES] = store
    found = {}
    try:
        for name in REWRITTEN:
            file, _, function = name.partition(".")
            [text] = [each.after for each in rewritten.changed if each.name == f"actions/{file}.py"]
            module: dict[str, object] = {"__name__": f"rewritten_example.{file}"}
            exec(compile(text, file, "exec"), module)
            assert "rewritten." in text.partition(f"def {function}(")[2].partition("\n\n\n")[0]
            work = module[function]
            assert callable(work)
            found[name] = LegacyAction(name, frozenset(), 1, work)
        yield found
    finally:
        del sys.modules[STORES]


def test_what_is_rewritten_does_what_the_original_did(example: Example, actions: dict[str, LegacyAction]) -> None:
    for name, changed in actions.items():
        if name != ONCE:
            _compare(example, name, changed)


def test_a_fact_that_is_there_already_is_not_inserted_again(example: Example, actions: dict[str, LegacyAction]) -> None:
    """It cannot be put back: so the same chances come again, to the original as well."""
    for phase, seeds in ((Phase.SHADOW, range(100, 160)), (Phase.LIVE, range(200, 260))):
        if phase is Phase.LIVE:
            example.moved.carry()
            example.moved.phase(phase)
        added = []
        for seed in seeds:
            before = example.facts()
            assert example.worker.do(actions[ONCE], Random(seed)).outcome is WorkOutcome.COMMITTED
            after = example.facts()
            new = [(trip, number) for trip, facts in after.items() for number in facts.keys() - before[trip].keys()]
            added.append(len(new))
            assert all(after[trip][number] == body for trip in before for number, body in before[trip].items())
            again = ACTIONS[ONCE] if phase is Phase.SHADOW else actions[ONCE]
            assert example.worker.do(again, Random(seed)).outcome is WorkOutcome.COMMITTED
            assert example.facts() == after
            if set(added) == {0, 1}:
                break
        assert set(added) == {0, 1}  # one was there, one was not
    example.moved.phase(Phase.SHADOW)


def _compare(example: Example, name: str, changed: LegacyAction) -> None:
    """The same chances on the same rows. After each run the row is put back, so that a call that does nothing shows."""
    before = {trip: example.state(trip) for (trip,) in example.moved.legacy.sql("SELECT id FROM trips")}
    outcomes: dict[Phase | None, list[tuple[int, list[tuple[object, Json]]]]] = {}
    is_silent = True
    for phase in (None, Phase.SHADOW, Phase.LIVE):
        if phase is Phase.LIVE:
            example.moved.carry()
            example.moved.phase(phase)
        outcomes[phase] = []
        for seed in range(3):
            facts = example.facts()
            done = example.worker.do(ACTIONS[name] if phase is None else changed, Random(seed))
            assert done.outcome is WorkOutcome.COMMITTED
            for trip in done.trips:
                new = _new_facts(facts[trip], example.facts()[trip])
                is_silent = is_silent and not new and _bodies(example.state(trip)) == _bodies(before[trip])
                outcomes[phase].append((trip, [*_bodies(example.state(trip)), *new]))
            for trip in done.trips:
                example.put_back(trip, before[trip])
    example.moved.phase(Phase.SHADOW)
    assert outcomes[Phase.SHADOW] == outcomes[Phase.LIVE] == outcomes[None]
    assert is_silent is (name == "quiet.assign_the_same")


def _new_facts(before: dict[int, Json], after: dict[int, Json]) -> list[tuple[object, Json]]:
    """Of those that a call appended how far from the last one, as they stay for the next run."""
    last = max(before, default=0)
    return [(number - last, body) for number, body in sorted(after.items()) if number not in before]


def _bodies(state: TripState) -> list[tuple[object, Json]]:
    """Of the rows that are there: children that a run made lie below a tombstone in the next one."""
    return [(key, body) for key, (_ref_key, body) in sorted(state.items()) if body is not None]
