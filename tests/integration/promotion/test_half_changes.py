"""A replica that has half of a change of its dead primary leads without a wait (I1)."""

from __future__ import annotations

import threading
from contextlib import closing
from unittest.mock import patch

import pytest

from schemaless_core.engine.mysql import replication
from schemaless_core.errors import PromotionRefused
from tests.chaos.actors import wait_until
from tests.promoted import Promotable
from tripstore.local.binlog import BinlogServer


@pytest.mark.parametrize("server_engine", ["mysql"], indirect=True)
@pytest.mark.parametrize("ends_it", [True, False], ids=["ended", "control"])
def test_i1_a_replica_that_has_half_a_change_leads_without_a_wait(kept: Promotable, ends_it: bool) -> None:
    """MySQL 9 waited a minute for the end of a change whose source was dead, and the promotion stopped.

    The server is told to say so after two seconds. MariaDB stops at once.
    """
    cells = kept.put(3)
    fetch_half_a_change(kept.old, kept.replica())
    kept.replica().query("SET GLOBAL rpl_stop_replica_timeout = 2")
    kept.old.kill()
    order = kept.order(dead=(kept.old,))

    if ends_it:
        kept.promote(order)
        cells += kept.put(3)
        assert sorted(kept.log()) == sorted((*cell.key, cell.body) for cell in cells)
    else:
        with (
            patch.object(replication, "_end_waiting", lambda _connection: None),
            pytest.raises(PromotionRefused, match="STOP REPLICA command execution is incomplete"),
        ):
            kept.promote(order)


def fetch_half_a_change(source: BinlogServer, replica: BinlogServer) -> None:
    """Cut a replica off while it fetches a large change. One that was quicker tries another one."""
    with closing(source.proxy()) as way:
        replica.query("STOP REPLICA")
        replica.query("CHANGE REPLICATION SOURCE TO SOURCE_PORT = %s", way.port)
        replica.query("START REPLICA")
        source.query("CREATE TABLE trips_meta.large (body LONGBLOB)")
        source.query("INSERT INTO trips_meta.large VALUES (REPEAT('x', 1000000))")
        assert replica.wait_for_position(source.position(), 20)
        for doublings in range(5, 10):
            before = position_in(replica, "Read")
            grows = threading.Thread(target=write_large, args=(source, 2**doublings))
            grows.start()
            wait_until("it fetches", lambda: position_in(replica, "Read") > before + 1_000_000)  # noqa: B023  # called before it changes
            way.refuse()
            grows.join()
            wait_until("it has lost its source", lambda: replica.replica_status()["Replica_IO_Running"] != "Yes")
            if position_in(replica, "Exec") < position_in(replica, "Read"):
                return
            way.heal()
        raise AssertionError("each change was fetched before it could be cut")


def position_in(replica: BinlogServer, which: str) -> int:
    """How far it has read, or executed, the log of its source."""
    return int(str(replica.replica_status()[f"{which}_Source_Log_Pos"]))


def write_large(server: BinlogServer, megabytes: int) -> None:
    """One change of so many rows, sent as one."""
    rows = ", ".join(["(REPEAT('x', 1000000))"] * megabytes)
    server.query(f"INSERT INTO trips_meta.large VALUES {rows}")
