"""`Lacking`: second copies that a replica lacks keep nothing waiting, and are looked at again."""

from __future__ import annotations

from collections.abc import Sequence

from schemaless_core.buffers.ports import Waiting
from schemaless_core.buffers.second_copies import REST_SECONDS, REST_SECONDS_MAX, Lacking
from schemaless_core.cell.stored import NewCell

SHARD = 3


def copies(numbers: Sequence[int]) -> list[Waiting]:
    return [Waiting(number, NewCell(b"row", b"BASE", number, b"1"), is_second=True) for number in numbers]


def key(number: int) -> tuple[bytes, bytes, int]:
    return (b"row", b"BASE", number)


def test_a_portion_of_them_is_passed_and_what_is_read_to_its_end_begins_anew() -> None:
    lacking = Lacking()
    lacking.read([SHARD], [SHARD] * 3, 3, is_cut=False)
    lacking.note({SHARD: copies([4, 5, 6])}, {key(5)})
    assert lacking.passed == {SHARD: 6}

    lacking.read([SHARD], [SHARD] * 2, 3, is_cut=False)
    lacking.note({SHARD: copies([7, 8])}, {key(7)})
    assert lacking.passed == {}


def test_what_the_bytes_cut_was_not_read_to_its_end() -> None:
    lacking = Lacking()
    lacking.read([SHARD], [SHARD], 3, is_cut=True)
    lacking.note({SHARD: copies([4])}, set())

    assert lacking.passed == {SHARD: 4}


def test_nothing_behind_a_cell_that_its_shard_did_not_take_is_passed() -> None:
    lacking = Lacking()
    lacking.read([SHARD], [SHARD] * 3, 3, is_cut=False)
    lacking.keep_out(SHARD, 5)
    lacking.note({SHARD: copies([4, 6])}, set())
    assert lacking.passed == {SHARD: 4}

    lacking.read([SHARD], [SHARD] * 3, 3, is_cut=False)
    lacking.keep_out(SHARD, 5)
    lacking.note({SHARD: copies([6, 7])}, set())
    assert lacking.passed == {SHARD: 4}, "the next portion has it again"


def test_a_shard_of_which_a_replica_lacks_all_rests_longer_each_time() -> None:
    """Others get their turn. The control: of one of which some was there it is asked again at once."""
    now = 100.0
    lacking, rests = Lacking(lambda: now), list[float]()
    for _time in range(7):
        lacking.read([SHARD], [SHARD], 3, is_cut=False)
        lacking.note({SHARD: copies([4])}, set())
        assert lacking.awake([SHARD, 9]) == [9]
        begun = now
        while not lacking.awake([SHARD]):
            now += 0.25
        rests.append(now - begun)
    assert rests[0] == REST_SECONDS
    assert rests == sorted(rests)
    assert rests[-1] == REST_SECONDS_MAX

    lacking.read([SHARD], [SHARD] * 2, 3, is_cut=False)
    lacking.note({SHARD: copies([4, 5])}, {key(4)})
    assert lacking.awake([SHARD]) == [SHARD]
