"""Old cells that are stored anew while others read, repair and purge them; dictionaries that are trained (I2, I4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest

from schemaless_core import (
    Cell,
    CellKey,
    Datastore,
)
from schemaless_core.cell.canonical import canonical_bytes
from schemaless_core.cell.standing import Gate, Kind
from schemaless_core.compression.compress_jobs import CompressOrder
from schemaless_core.deadline import Deadline
from schemaless_core.engine.dictionaries import document_of
from schemaless_core.failpoints import FailpointReached
from schemaless_core.mends import RawCell
from tests.compressed import (
    COMPRESSION,
    OTHER,
    SOME,
    bodies_of,
    body_of,
    compressed_of,
    look_again,
    opening_beside,
    teach,
    turn_over,
)
from tests.factories import keys_in
from tests.repairs import failing_at
from tests.stores import Stores

SECONDS = 20.0
GROUP = "billing"


def soon() -> Deadline:
    return Deadline(SECONDS)


@pytest.fixture
def store(datastore_engine: str, stores: Stores) -> Datastore:
    """One that compresses, as soon as it is taught."""
    return stores.fresh(datastore_engine, shards=2, compression=COMPRESSION)


@pytest.fixture
def beside(store: Datastore) -> Iterator[Callable[..., Datastore]]:
    with opening_beside(store) as open_it:
        yield open_it


def raw_of(store: Datastore, key: CellKey) -> RawCell:
    found = store.mends.find(key)
    assert found is not None
    return found


def test_i4_a_cell_is_mended_and_purged_whatever_form_another_process_gave_it_meanwhile(
    store: Datastore, beside: Callable[..., Datastore]
) -> None:
    plain = beside()
    cells = [Cell(uuid4(), "BASE", 1, body_of(n)) for n in range(3)]
    plain.put_cells(cells)
    raws = [raw_of(plain, cell.key) for cell in cells]
    teach(store)
    turn_over(store)
    assert compressed_of(store) == (3, 3)
    teach(store, OTHER)

    assert plain.mends.mend(raws[0], b'{"n":1}')
    assert not store.mends.mend(raws[0], b'{"n":2}')
    assert plain.mends.purge_all([raws[1]]) == [True]
    assert store.mends.purge_all([raws[2]]) == [True]
    lines = [
        line for cluster in store.clusters.values() for line in cluster.primary.node.mending.lines(None, 9, soon())
    ]
    assert {line.old_body for line in lines} >= {canonical_bytes(cell.body) for cell in cells}
    assert plain.get_cell_latest(cells[1].row_key, "BASE") is None
    mended = plain.get_cell_latest(cells[0].row_key, "BASE")
    assert mended is not None
    assert mended.body == {"n": 1}


def test_old_cells_are_turned_over_and_back_again(store: Datastore, beside: Callable[..., Datastore]) -> None:
    plain = beside()
    cells = [Cell(uuid4(), "BASE", 1, body_of(n)) for n in range(450)] + [Cell(uuid4(), "NOTE", 1, None)]
    plain.put_cells(cells)
    before = [plain.get_cells_for_shard(shard, 0, 1_000).cells for shard in range(2)]
    times = [[cell.created_at for cell in page] for page in before]
    assert turn_over(store) == 0
    teach(store)

    counted = store.compress_jobs.count(store.compress_jobs.plan(CompressOrder()))
    assert (counted.cells, counted.looked) == (450, 451)
    assert compressed_of(store)[0] == 0
    assert turn_over(store) == 450
    assert compressed_of(store) == (450, 451)
    assert turn_over(store) == 0
    teach(store, OTHER)
    assert turn_over(store) == 450
    after = [plain.get_cells_for_shard(shard, 0, 1_000).cells for shard in range(2)]
    assert after == before
    assert [[cell.created_at for cell in page] for page in after] == times

    assert turn_over(plain) == 450
    assert compressed_of(store)[0] == 0
    assert [plain.get_cells_for_shard(shard, 0, 1_000).cells for shard in range(2)] == before


def test_a_job_goes_by_the_dictionaries_of_now_whatever_its_process_knows(
    store: Datastore, beside: Callable[..., Datastore]
) -> None:
    """A worker that has put just before knows of none: another process has made one since."""
    store.put_cells([Cell(uuid4(), "BASE", 1, body_of(n)) for n in range(50)])
    beside("*").dictionaries.put(SOME)
    for its in bodies_of(store):
        its.saved_bytes = -(2**30)

    assert turn_over(store) == 50
    assert compressed_of(store) == (50, 50)


@pytest.mark.parametrize("point", ["turning.before_send", "turning.answered", "compress.before_save", "compress.saved"])
def test_i4_a_worker_that_fell_anywhere_is_gone_on_with(
    store: Datastore, beside: Callable[..., Datastore], point: str
) -> None:
    plain = beside()
    cells = [Cell(uuid4(), "BASE", 1, body_of(n)) for n in range(20)]
    plain.put_cells(cells)
    teach(store)
    job = store.compress_jobs.begin(store.compress_jobs.plan(CompressOrder()))
    with failing_at(point), pytest.raises(FailpointReached):
        store.compress_jobs.runner(job, "first").run()

    store.compress_jobs.runner(job, "second").run()

    assert compressed_of(store) == (20, 20)
    assert store.compress_jobs.jobs.progress(job.id).job.state == "done"
    assert [plain.get_cell(*cell.key) for cell in cells] == cells


def test_i2_what_repair_did_meanwhile_stays(store: Datastore, beside: Callable[..., Datastore]) -> None:
    plain = beside()
    cell, gone = (Cell(next(keys_in(store, 0)), "BASE", 1, body_of(n)) for n in (1, 2))
    plain.put_cells([cell, gone])
    teach(store)
    raws = [raw_of(plain, each.key) for each in (cell, gone)]

    def repair() -> None:
        assert plain.mends.mend(raws[0], b'{"n":1}')
        assert plain.mends.purge_all([raws[1]]) == [True]

    turn_with(store, repair)
    found = plain.get_cell(*cell.key)
    assert found is not None
    assert found.body == {"n": 1}
    assert plain.get_cell(*gone.key) is None


def turn_with(store: Datastore, meanwhile: Callable[[], None]) -> None:
    """Turn shard 0 over, and do something else between the look at its cells and the change of them."""
    node = store.clusters[store._places.get(0, soon()).cluster].primary.node
    gate, kept = Gate(0, 1, Kind.OWNER, 0), node.bodies.anew
    if not hasattr(node.turning, "_read") or store.config.clusters[0].primary.engine == "sqlite":
        meanwhile()  # a file has one writer
        node.turning.turn(gate, 0, 100, 100, soon())
        return
    are_done = list[bool]()

    def anew(column_name: bytes, stored: bytes) -> bytes:
        if not are_done:
            are_done.append(True)
            meanwhile()
        return kept(column_name, stored)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(node.bodies, "anew", anew)
        node.turning.turn(gate, 0, 100, 100, soon())
    assert are_done


def test_a_worker_with_another_configuration_leaves_the_job_alone(
    store: Datastore, beside: Callable[..., Datastore]
) -> None:
    teach(store)
    store.put_cell(uuid4(), "BASE", 1, body_of(1))
    job = store.compress_jobs.begin(store.compress_jobs.plan(CompressOrder()))
    with pytest.raises(Exception, match="other columns"):
        beside().compress_jobs.runner(job, "second")


def test_a_dictionary_is_trained_from_what_is_stored_and_stays_beside_the_next(
    datastore_engine: str, stores: Stores
) -> None:
    store = stores.fresh(datastore_engine, shards=2, compression={"columns": ["BASE"]})
    with pytest.raises(Exception, match="too few"):
        store.training.train("BASE", 4_096, 1_000)
    store.put_cells([Cell(uuid4(), "BASE", 1, body_of(n)) for n in range(1_000)])

    first = store.training.train("BASE", 4_096, 1_000)
    assert first.bytes_compressed < 0.7 * first.bytes_plain
    assert store.dictionaries.all() == []
    store.training.keep(first)
    look_again(store)
    store.put_cell(uuid4(), "BASE", 1, body_of(1_001))
    second = store.training.train("BASE", 2_048, 1_000)
    store.training.keep(second)

    assert [(each.column_name, each.number) for each in store.dictionaries.all()] == [("BASE", 1), ("BASE", 2)]
    assert compressed_of(store)[0] == 1
    assert [cell.body for shard in range(2) for cell in store.get_cells_for_shard(shard, 0, 2_000).cells]
    document = document_of(first.dictionary)
    changed = document._replace(body=document.body.replace(b'"number":1', b'"number":9'))
    for cluster in store.clusters.values():
        cluster.primary.node.put_document(changed, soon())
    assert [each.number for each in store.dictionaries.all()] == [1, 2]
