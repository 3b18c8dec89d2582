"""`tripstore schema` below a legacy store: shards are its copies, which refuse owners until a switch opens them."""

from __future__ import annotations

from uuid import uuid4

import pytest

from schemaless_core import Datastore, StaleEpoch
from tests.acceptance.conftest import Shell
from tests.acceptance.test_cli_legacy_schema import Company
from tripstore.config import load_config
from tripstore.local.servers import LocalServers


@pytest.fixture
def company(servers: LocalServers, shell: Shell) -> Company:
    return Company(servers, shell, "machine")


def opened(company: Company) -> Datastore:
    return Datastore(load_config(company.shell.folder / "tripstore.yaml").core)


def test_new_shards_are_copies(company: Company) -> None:
    planned = company.shell.call("schema", "plan")
    applied = company.shell.run("schema", "apply", "--json").document

    assert "New shards are copies: the legacy store is the authority" in planned.stdout
    assert (applied["state"], applied["open_shards"]) == ("COPY", 0)
    with opened(company) as store, pytest.raises(StaleEpoch, match="COPY"):
        store.put_cell(uuid4(), "BASE", 1, "refused")


def test_shards_of_before_the_legacy_store_become_copies_until_a_switch_opens_them(company: Company) -> None:
    """Made and written while Schemaless was alone."""
    row = uuid4()
    with opened(company) as store:
        store.create_schema()
        store.put_cell(row, "NOTES", 1, "an owner's")

    planned = company.shell.call("schema", "plan")
    applied = company.shell.call("schema", "apply")
    assert "4 shards are open to owners; `apply` makes them copies" in planned.stdout
    assert "4 shards were open to owners, and are copies now" in applied.stdout
    with opened(company) as store:
        assert store.get_cell(row, "NOTES", 1) is not None
        with pytest.raises(StaleEpoch, match="COPY"):
            store.put_cell(row, "NOTES", 2, "refused")
        store.authority.open("a", 2)

    again = company.shell.call("schema", "apply", "--json").document
    assert (again["is_complete"], again["open_shards"]) == (True, 0)
    with opened(company) as store:
        assert store.put_cell(row, "NOTES", 2, "an owner's").status == "CREATED"
