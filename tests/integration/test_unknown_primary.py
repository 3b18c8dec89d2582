"""A cluster of which a process knows no primary: who leads is silent, and the others only follow (I1, I5, I9, I12)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from schemaless_core import Cell, Datastore, PutStatus
from schemaless_core.deadline import Deadline
from schemaless_core.errors import NodeUnavailable, PromotionRefused
from schemaless_core.fsck.faults import NOT_COMPARED
from tests.chaos.test_unresponsive_server import rows_on
from tests.fscks import kinds_in
from tests.promoted import Promotable, promotable
from tests.stores import ServerEngine


@pytest.fixture
def led_by_replica(server_engine: ServerEngine, tmp_path: Path) -> Iterator[Promotable]:
    """The replica was made the primary. The configuration still calls the other server that."""
    with promotable(server_engine, tmp_path / "control", replicas=1, buffer={"put_seconds": 5.0}) as made:
        made.put(2)
        made.promote(made.order(to=made.replica()))
        made.wait_until_equal(made.old)
        yield made


def test_i1_i5_i9_i12_its_puts_wait_its_cells_are_read_and_an_operator_names_another(
    led_by_replica: Promotable, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("runner", "beside"):
        monkeypatch.setattr(f"schemaless_core.fsck.{module}.PAUSE_SECONDS", 0.05)  # between looks at what is silent
    monkeypatch.setattr("schemaless_core.fsck.beside.FIND_SECONDS", 0.2)
    made = led_by_replica
    (there,), (row,) = made.put(1), rows_on(made.store, "a", 1)
    made.wait_until_equal(made.old)
    made.replica().kill()
    with Datastore.open(made.document) as begun:
        with pytest.raises(NodeUnavailable, match="promotion 1 made a server its primary that does not answer"):
            begun.clusters["a"].write(lambda node: node.heads(None, Deadline(1.0)))

        assert begun.put_cell(row, "BASE", 1, "x").status is PutStatus.BUFFERED
        assert begun.get_cell(*there.key) == there, "the other server follows, and answers reads"
        assert begun.using(include_buffered=True).get_cell(row, "BASE", 1) == Cell(row, "BASE", 1, "x")
        assert begun.replayer().round().cells == 0, "nothing is carried to a server that follows"
        assert isinstance(begun.replayer().sizes()["a"], NodeUnavailable)
        assert NOT_COMPARED in kinds_in(begun), "what cannot be looked at is not called right"
        with pytest.raises(PromotionRefused, match="--old-is-dead only if it is stopped"):
            begun.promotions.promoter("a").promote(made.order(to=made.old))

        begun.promotions.promoter("a").promote(made.order(to=made.old, dead=(made.replica(),)))

        assert begun.clusters["a"].primary.node.name == made.name(made.old)
        while begun.replayer().round().left:
            pass
        assert begun.get_cell(row, "BASE", 1) == Cell(row, "BASE", 1, "x")
    left = {"clusters": made.document["clusters"] | {"a": {"primary": made.old.url}}}
    with Datastore.open(made.document | left) as without_it:
        assert kinds_in(without_it) == []
