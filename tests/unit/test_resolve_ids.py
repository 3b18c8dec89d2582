"""Many legacy ids are asked for together: an id has no question of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import pytest

from schemaless_core import Datastore
from schemaless_core.indexes.lookup import VALUES_PER_LOOK
from tripstore.backends.schemaless.backend import SchemalessBackend


def test_a_question_has_as_many_ids_as_a_packet_and_those_that_are_missing_are_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What each server hears of one such question: `test_first_rows.py`."""
    asked: list[tuple[str, int]] = []

    def first_rows(_store: Datastore, _name: str, values: Sequence[int], consistency: str) -> dict[int, UUID]:
        asked.append((consistency, len(values)))
        return {number: UUID(int=number) for number in values if consistency == "verified" or number % 2}

    monkeypatch.setattr(Datastore, "first_rows", first_rows)
    clusters = {"a": {"primary": f"sqlite:///{tmp_path}"}}
    with SchemalessBackend.open({"datastore": "trips", "shards": 4, "clusters": clusters}) as store:
        found = store.resolve_ids([*range(2 * VALUES_PER_LOOK), 3])

    assert found == {number: UUID(int=number) for number in range(2 * VALUES_PER_LOOK)}
    assert asked == [("fast", VALUES_PER_LOOK), ("fast", VALUES_PER_LOOK), ("verified", VALUES_PER_LOOK)]
