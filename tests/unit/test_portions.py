"""Portions of the log: smaller after an answer that was late, up to one cell of one shard; larger again by and by."""

from schemaless_core.triggers.portions import SHARDS_MAX, Portions


def test_at_first_as_much_is_fetched_as_may_be() -> None:
    portions = Portions(500)
    assert (portions.shards, portions.cells) == (SHARDS_MAX, 500)


def test_late_answers_lead_to_single_cells_in_a_few_steps() -> None:
    portions = Portions(500)
    for _ in range(5):
        portions.note(is_late=True)
    assert (portions.shards, portions.cells) == (1, 1)


def test_answers_in_time_lead_back_to_the_most() -> None:
    portions = Portions(500)
    portions.note(is_late=True)
    assert portions.cells < 500
    for _ in range(20):
        portions.note(is_late=False)
    assert (portions.shards, portions.cells) == (SHARDS_MAX, 500)
