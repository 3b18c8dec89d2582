"""`tripstore console` beside one store: who may change something, parked cells, fsck and backups."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import pytest
import yaml
from playwright.sync_api import Browser

from schemaless_core import Cell, Datastore
from schemaless_core.control.audit import AuditLog
from tests.acceptance.conftest import SHARDS, Shell
from tests.acceptance.test_cli_triggers import MODULE, new_cells
from tests.acceptance.workers import quicken, serving
from tests.chaos.actors import wait_until
from tests.consoles import ConsoleClient, axe_violations, console_of, opened
from tests.damage import spoil
from tests.hands import Hands
from tests.stores import ServerEngine, Stores
from tripstore.cli.console.access import HEADER

CHANGES = "--allow-changes"
DONE = "✓ Done"


@pytest.fixture
def shop(store: Shell, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    """A folder with a module of triggers in it, and quick leases; what is imported from it is forgotten."""
    quicken(store)
    (store.folder / "shop.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield store
    sys.modules.pop("shop", None)


@pytest.fixture
def datastore(shop: Shell) -> Iterator[Datastore]:
    with Datastore.open(shop.folder / "tripstore.yaml") as opened_store:
        yield opened_store


def sealed(client: ConsoleClient) -> dict[str, str]:
    """The headers of a session's own page."""
    origin = str(client.base_url).rstrip("/")
    begun = client.post("/session", json={"token": client.token}, headers={HEADER: "1", "Origin": origin})
    return {HEADER: begun.json()["seal"], "Origin": origin}


def test_without_the_option_it_only_looks(browser: Browser, store: Shell) -> None:
    with console_of(store) as client, opened(browser, client) as page:
        page.locator("#servers td").first.wait_for()
        assert page.locator("[data-action], dialog, #changes").count() == 0
        assert "It only looks." in page.locator("footer").inner_text()
        headers = sealed(client)
        assert client.post("/actions/fsck", json={"typed": "trips"}, headers=headers).status_code == 405
        assert client.post("/plans/fsck", json={}, headers=headers).status_code == 405
        assert client.get("/actions/fsck").status_code == 404


def test_a_change_needs_the_session_its_seal_and_our_origin(store: Shell) -> None:
    change = {"typed": "trips"}
    with console_of(store, CHANGES) as client:
        origin = str(client.base_url).rstrip("/")
        ours = {HEADER: "1", "Origin": origin}
        assert client.post("/actions/fsck", json=change, headers=ours).status_code == 401
        assert client.get("/actions/fsck").status_code == 401
        headers = sealed(client)
        with ConsoleClient(base_url=client.base_url) as other:
            other.token = client.token
            of_other = sealed(other)
        refused: list[tuple[int, dict[str, str]]] = [
            (403, {"Origin": origin}),
            (403, headers | {"Origin": "https://evil.example"}),
            (403, {HEADER: headers[HEADER]}),
            (403, ours),
            (403, of_other),
        ]
        for status, sent in refused:
            for path in ("/actions/fsck", "/plans/fsck"):
                assert client.post(path, json=change, headers=sent).status_code == status, (path, sent)
        assert client.post("/actions/nothing", json=change, headers=headers).status_code == 404
        assert client.post("/actions/fsck", json={"typed": "trip"}, headers=headers).status_code == 409
        assert client.post("/actions/fsck", content=b"{", headers=headers).status_code == 400
        assert client.post("/actions/fsck", content=b" " * 10_000, headers=headers).status_code == 413
        chosen = {"typed": "trips", "chosen": "--all"}
        assert client.post("/actions/triggers-retry", json=chosen, headers=headers).status_code == 409
        assert client.post("/actions/fsck", json=change | {"why": "a\0b"}, headers=headers).status_code == 400
        assert begun_fscks(store) == 0, "nothing of this began one"
        assert client.post("/actions/fsck", json=change, headers=headers).status_code == 202
        wait_until("it is begun", lambda: begun_fscks(store) == 1)


def begun_fscks(store: Shell) -> int:
    with Datastore.open(store.folder / "tripstore.yaml") as opened_store:
        return [each.action for each in AuditLog(opened_store.control).newest(50)].count("fsck.start")


def test_parked_cells_are_retried_by_mouse(browser: Browser, shop: Shell, datastore: Datastore) -> None:
    datastore.triggers.register_group("noted", "beginning")
    datastore.put_cells([Cell(new_cells(1)[0].row_key, "BASE", 1, "poison")])
    with serving(shop, "shop:app", "--json"):
        wait_until("it is parked", lambda: bool(datastore.triggers.parked("noted")))
        with console_of(shop, CHANGES) as client, opened(browser, client) as page:
            page.locator("#groups th", has_text="noted").wait_for()
            hands = Hands(page, client.token)
            hands.open("triggers-retry", "noted")
            assert "this cell is refused" in hands.dialog.inner_text(), "what would be tried again"
            before = datastore.triggers.parked("noted")[0].attempts
            hands.confirm("trips")
            assert hands.verdict() == DONE
            wait_until("it is tried again", lambda: datastore.triggers.parked("noted")[0].attempts > before)


def test_fsck_and_backups_show_the_last_ones_and_what_is_wrong(
    browser: Browser, server_engine: ServerEngine, stores: Stores, shell: Shell
) -> None:
    config = stores.config(server_engine, shards=SHARDS)
    (shell.folder / "tripstore.yaml").write_text(yaml.safe_dump(json.loads(json.dumps(config))))
    cells = new_cells(5)
    with Datastore.open(config) as datastore:
        datastore.create_schema()
        datastore.put_cells(cells)
        made = shell.call("backup", "create", "kept", "--json").document["backup"]
        spoil(datastore, cells[0], b'{"b":1,  "a":2}')
    assert shell.call("fsck").code == 1
    with console_of(shell, CHANGES) as client, opened(browser, client) as page:
        page.locator("#fsck td").first.wait_for()
        said = page.locator("#fsck").inner_text()
        assert "✓ done" in said
        assert "tripstore cell" in said, "a command that shows it"
        page.locator("#backups td", has_text="whole").wait_for()
        hands = Hands(page, client.token)
        folder = str(shell.folder / "kept")
        assert hands.do("backup-verify", config["datastore"], chosen=folder) == DONE
        assert axe_violations(page) == {}

        file = next((shell.folder / "kept" / made).glob("000?-0*"))
        file.write_bytes(file.read_bytes()[:-1])
        hands.open("backup-verify", folder)
        hands.confirm(config["datastore"])
        assert hands.verdict() == "✕ Failed, or differences are left"
        assert file.name in hands.dialog.inner_text(), "what is damaged"
