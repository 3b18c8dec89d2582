"""Row security switched on later: what a policy hides from us is refused by name, never told as missing (I8, I12)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, cast
from uuid import UUID, uuid4

import psycopg2
import pytest

from schemaless_core.errors import InvalidServer
from tests.facades import Migration, migration
from tests.serving import serve
from tests.stores import Stores
from tripstore.backends.postgres.capture import verify
from tripstore.backends.postgres.wire import connections
from tripstore.cli.legacy.doctor import examine
from tripstore.handover.relay import drain
from tripstore.handover.steps import run
from tripstore.local.servers import LocalServers
from tripstore.migration.mirror.look import LookFailed
from tripstore.migration.mirror.mirror import Mirror
from tripstore.phase import Phase
from tripstore.store import TripStore

#: As a role has them that ran `schema apply`, but neither owns the company's tables nor bypasses policies.
ROLE = """
CREATE ROLE {role} LOGIN PASSWORD 'x'; GRANT pg_read_all_stats TO {role};
GRANT USAGE, CREATE ON SCHEMA public, tripstore TO {role};
GRANT ALL ON ALL TABLES IN SCHEMA public, tripstore TO {role};
GRANT ALL ON ALL SEQUENCES IN SCHEMA public, tripstore TO {role}
"""
SWITCHED_ON = "ALTER TABLE trips ENABLE ROW LEVEL SECURITY; CREATE POLICY few ON trips USING (id > 1)"
FUNCTIONS = """
SELECT format('ALTER FUNCTION %s OWNER TO {role}', p.oid::regprocedure) FROM pg_proc p
WHERE p.pronamespace = 'tripstore'::regnamespace
"""


@dataclass(frozen=True)
class Hidden:
    """A migration, a facade whose role a policy will hide the first of two trips from, and that trip."""

    made: Migration
    store: TripStore
    role: str
    row_key: UUID

    def ask(self) -> dict[str, Callable[[], object]]:
        """What would tell that the trip is not there, or leave it out."""
        store, key = self.store, self.row_key
        return {
            "latest": lambda: store.get_cell_latest(key, "BASE"),
            "row": lambda: store.get_row(key),
            "id": lambda: store.resolve_id(1),
            "scan": lambda: [store.scan_rows(shard) for shard in range(8)],
            "put": lambda: store.put_cell(key, "BASE", 2, {"status": "x"}),
            "early child": lambda: store.put_cell(key, "STATUS", 9, {"result": "x"}),
        }

    def errors(self) -> list[str]:
        """What `tripstore doctor` complains of."""
        config = self.store.facade.config.legacy
        assert config is not None
        return [str(each) for each in examine(config, (), lambda: None).complaints if each.is_error]


@pytest.fixture(params=["postgres", "postgres18"])
def hidden(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[Hidden]:
    with migration(servers, stores, postgres=request.param) as made:
        role = f"hidden_{uuid4().hex[:8]}"
        made.legacy.sql(ROLE.format(role=role))
        made.phase(Phase.SHADOW)
        (_, first), _ = made.legacy.trip(), made.legacy.trip()
        made.carry()
        url = re.sub(r"//[^@]*@", f"//{role}:x@", made.legacy.url)
        options = {**cast("dict[str, Any]", made.document["legacy"]), "postgres": url}
        other = Migration(made.store, made.legacy, {**made.document, "legacy": options})
        with closing(other.connect()) as store:
            yield Hidden(made, store, role, first)


def test_i12_a_row_that_a_policy_hides_is_refused_and_not_told_as_missing(hidden: Hidden) -> None:
    assert hidden.store.get_row(hidden.row_key)["BASE"].body == {"status": "requested"}
    hidden.made.legacy.sql(SWITCHED_ON)

    for ask in hidden.ask().values():
        with pytest.raises(InvalidServer, match="row-level security") as told:
            ask()
        assert "BYPASSRLS" in (told.value.hint or "")
    (said,) = hidden.errors()
    assert "row-level security" in said
    assert "BYPASSRLS" in said

    hidden.made.legacy.sql(f"ALTER ROLE {hidden.role} BYPASSRLS")
    assert hidden.store.get_row(hidden.row_key)["BASE"].body == {"status": "requested"}


def test_control_a_session_that_meets_policies_tells_the_row_as_missing(
    hidden: Hidden, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "SIGHT", {})
    hidden.made.legacy.sql(SWITCHED_ON)

    assert hidden.store.get_cell_latest(hidden.row_key, "BASE") is None


def test_i8_the_relay_carries_what_services_change_of_rows_that_it_does_not_see(hidden: Hidden) -> None:
    """A change in the queue has its row with it: the relay reads none of the company's tables."""
    made = hidden.made
    made.legacy.sql(SWITCHED_ON)
    made.legacy.sql("UPDATE trips SET status = 'changed' WHERE id = 1")

    assert hidden.store.facade.duo is not None
    assert run(drain(hidden.store.facade.duo.ports))

    cell = made.facade.store.get_cell_latest(hidden.row_key, "BASE")
    assert cell == made.duo.legacy.get_cell_latest(hidden.row_key, "BASE")
    assert cell is not None
    assert cell.body == {"status": "changed"}


def test_i8_the_reverse_mirror_waits_and_loses_nothing(hidden: Hidden) -> None:
    """What a policy hides is not parked either: once the role sees it, it is carried."""
    made = hidden.made
    made.switch()
    made.legacy.sql(SWITCHED_ON)
    made.store.put_cell(hidden.row_key, "BASE", 5, {"status": "live"})
    assert hidden.store.facade.duo is not None
    hidden.store.facade.duo.watch.look()

    with pytest.raises(LookFailed, match="row-level security"):
        serve(hidden.store.facade.store, Mirror(hidden.store.facade).reverse())
    assert made.legacy.sql("SELECT status FROM trips WHERE id = 1") == [("requested",)]

    made.carry()
    assert made.legacy.sql("SELECT status, base_version FROM trips WHERE id = 1") == [("live", 5)]


def test_i8_capture_whose_owner_meets_policies_takes_no_hidden_parent_for_a_deleted_one(hidden: Hidden) -> None:
    """Facts go with their parent alone: where the parent cannot be seen, the deletion is refused."""
    legacy = hidden.made.legacy
    legacy.sql("INSERT INTO attempts (trip_id, attempt_no, result) VALUES (1, 1, 'paid')")
    for (statement,) in legacy.sql(FUNCTIONS.format(role=hidden.role)):
        legacy.sql(statement)
    legacy.sql(SWITCHED_ON)

    with pytest.raises(psycopg2.errors.InsufficientPrivilege, match="row-level security"):
        legacy.sql("DELETE FROM attempts")

    legacy.sql("ALTER FUNCTION tripstore.status_delete() RESET row_security")  # the control
    legacy.sql("DELETE FROM attempts")
    assert legacy.sql("SELECT ref_key, row FROM tripstore.queue WHERE column_name = 'STATUS' AND row IS NULL") == [
        (2, None)
    ]
    with legacy.ours() as connection:
        found = [str(each) for each in verify(connection, hidden.made.duo.legacy.layout) if each.is_error]
    assert any(f"row-level security that holds for {hidden.role}" in each for each in found)
