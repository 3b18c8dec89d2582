"""Every value of the corpus, summed by a pass over the tables, and read by the second decoder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

import pytest

from schemaless_core.cell.canonical import from_canonical
from schemaless_core.cell.sharding import BUCKETS_PER_SHARD, bucket_of, cell_hash, shard_of
from tests.corpus import CASES, Case, Row
from tests.corpus.company import SHARDS, Company, company, has
from tests.corpus.sessions import HOSTILE
from tests.corpus.writing import ServiceWriting
from tests.sparing import FewRows
from tripstore.backends.postgres.wire.connections import connected, rows
from tripstore.engines.validation.diff.buckets import BucketPlace
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers
from tripstore.migration.diff.decoder import path_of_difference, ref_key_of, select_of

PLACES = [BucketPlace(shard, number) for shard in range(SHARDS) for number in range(BUCKETS_PER_SHARD)]
#: Times that no calendar of Python's has: the decoder says nothing of them.
UNDECIDED = {
    *("array-timestamptz", "date", "domain-of-domain"),
    *("timestamp-without-zone", "timestamptz", "timestamptz-far", "timestamptz-infinity"),
}


@dataclass(frozen=True)
class Filled:
    """A company in whose tables each value stands once, in a row of its own."""

    company: Company
    values: dict[tuple[UUID, str], tuple[Case, Row]]


@pytest.fixture(scope="module")
def filled(servers: LocalServers) -> Iterator[Filled]:
    """On one Postgres: what the two do differently is the corpus' own test's."""
    flavour: Flavour = "machine"
    cases = [case for case in CASES if has(flavour, case) and case.misfit is None]
    with company(servers, flavour, cases) as of:
        values = {}
        for case in cases:
            service = ServiceWriting(case, next(iter(of.sessions.values())))
            for row in case.rows:
                key = of.new_row()
                service.insert(key, 1, row)
                values[key, case.name] = case, row
        yield Filled(of, values)


def test_a_pass_over_the_tables_hashes_every_value_as_it_stands_in_its_body(filled: Filled) -> None:
    of = filled.company
    for name in HOSTILE:
        found = {
            (UUID(bytes=each.row_key), each.column_name): each
            for each in of.stores[name].sums.digests(PLACES, None)
            if each.column_name not in ("BASE", "_LEGACY_ID")
        }
        assert found.keys() == filled.values.keys()
        for (key, column), (_case, row) in filled.values.items():
            each = found[key, column]
            if row.body is None:
                assert row.because in each.unreadable
            else:
                assert each.hash == cell_hash(key.bytes, column.encode(), each.ref_key, row.body)
                assert not each.unreadable


def test_a_pass_by_turns_hashes_every_value_alike(filled: Filled) -> None:
    """What a cursor answers is written as COPY writes it, characters that COPY escapes included."""
    sums = filled.company.stores[next(iter(HOSTILE))].sums
    at_one_go = set(sums.digests(PLACES, None))

    assert set(sums.by_turns(FewRows(7)).digests(PLACES, None)) == at_one_go
    assert len(at_one_go) == 3 * len(filled.values)


def test_buckets_with_a_value_that_has_no_body_are_doubtful(filled: Filled) -> None:
    """I12"""
    sums = filled.company.stores[next(iter(HOSTILE))].sums.checksums(range(SHARDS), None)
    refused = {key for (key, _column), (_case, row) in filled.values.items() if row.body is None}

    assert len(refused) > 10
    assert sums.doubtful == {BucketPlace(shard_of(key, SHARDS), bucket_of(key.bytes)) for key in refused}
    assert sum(bucket.count for bucket in sums.buckets.values()) == 3 * len(filled.values)


def test_the_second_decoder_agrees_with_every_body_and_with_no_other(filled: Filled) -> None:
    """The control in the same test: the body of another row of the case is seen."""
    of, missed, seen = filled.company, set[str](), 0
    with connected(of.url, "test") as connection:
        for case in {case.name: case for case, _row in filled.values.values()}.values():
            column = of.layout.columns[case.name]
            bodies = [row.body for row in case.rows if row.body is not None]
            for key, number, version, *values in rows(
                connection, f"SELECT {select_of(column)} FROM {column.table.sql} AS r"
            ):
                row = filled.values[UUID(key), case.name][1]
                if row.body is None:
                    continue
                assert ref_key_of(column, number, version) == column.compose(1, 0)
                assert path_of_difference(column, values, from_canonical(row.body)) is None, (case.name, row.sql)
                for other in bodies:
                    if other != row.body:
                        is_seen = path_of_difference(column, values, from_canonical(other)) is not None
                        seen += is_seen
                        missed |= set() if is_seen else {case.name}
    assert seen > 500
    assert missed <= UNDECIDED
