"""What `using` promises: the same store with other habits."""

from __future__ import annotations

import pytest

from schemaless_core import CellStore, Datastore, InvalidRequest
from tests.factories import make_cell


def test_other_habits_show_the_same_cells(store: CellStore) -> None:
    cell = make_cell()
    patient = store.using(deadline=30.0)

    patient.put_cell(*cell.key, cell.body)

    assert store.get_cell(*cell.key) == cell
    assert store.using(read="primary", include_buffered=True).get_cell(*cell.key) == cell


def test_habits_add_up(datastore: Datastore) -> None:
    both = datastore.using(read="replica").using(deadline=3.0)

    assert (both._habits.read, both._habits.deadline) == ("replica", 3.0)
    assert datastore._habits.read == "primary"


@pytest.mark.parametrize(
    "habit",
    [{"read": "nowhere"}, {"deadline": 0}, {"deadline": -1.0}, {"durability": "triple"}],
)
def test_a_habit_that_cannot_be_kept_is_refused(datastore: Datastore, habit: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest):
        datastore.using(**habit)  # type: ignore[arg-type]  # the wrong value is the point
