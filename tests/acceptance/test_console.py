"""`tripstore console` in a real Chromium: the page moves, reads well everywhere, and a dead server costs a section."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from playwright.sync_api import Browser

from schemaless_core import Cell
from tests.acceptance.conftest import Shell
from tests.acceptance.migrations import Migration, copied, migration_template
from tests.acceptance.test_cli_serve import certified
from tests.browsers import WIDER
from tests.consoles import PHONE, ConsoleClient, axe_violations, console_of, opened
from tests.layouts import document
from tripstore.cli.console.access import HEADER
from tripstore.cli.console.sections import sections_of
from tripstore.cli.console.stores import LAYOUT_SECONDS, ConsoleStores
from tripstore.cli.options import Settings
from tripstore.local.ports import free_port, release
from tripstore.local.servers import LocalServers

PLANTED = "nted-s3cret"
#: A console that has not looked yet answers as quickly as one that has.
FIRST_PAINT_SECONDS = 1.0
#: As where no server answers any more; and no news makes a section new again.
ALL_OLD = """() => {
    events.close();
    document.querySelectorAll('main > section[data-seconds]').forEach((section) => {
        section.dataset.failed = 'yes';
        age(section);
    });
}"""


@pytest.fixture(scope="module")
def migration(servers: LocalServers, tmp_path_factory: pytest.TempPathFactory) -> Migration:
    """Shadow reads have compared something, a backfill has ended."""
    made = copied(migration_template(servers, tmp_path_factory), tmp_path_factory.mktemp("console") / "own")
    made.run("phase", "set", "dualwrite")
    made.run("mirror", "drain")
    made.run("backfill", "start")
    made.run("phase", "set", "shadow")
    made.compare_reads()
    with made.datastore() as datastore:
        (row_key, *_) = made.row_keys()
        latest = datastore.get_cell_latest(row_key, "BASE")
        assert latest is not None
        taken = Cell(row_key, "BASE", latest.ref_key + 1, {"status": "<b>taken</b>"})
        datastore.as_copier().put_cells([taken])
    made.run("diff", "start", "--no-indexes", code=1)
    return made


@pytest.fixture(scope="module")
def client(migration: Migration) -> Iterator[ConsoleClient]:
    with console_of(migration.shell) as client:
        yield client


def test_every_section_says_what_its_command_says(
    browser: Browser, client: ConsoleClient, migration: Migration
) -> None:
    report = migration.run("report", "--json", code=4).document
    with opened(browser, client) as page:
        page.locator("#evidence .answer").wait_for()
        page.locator("#jobs td").first.wait_for()

        page.locator("#standing [aria-current=step]", has_text="shadow").wait_for()
        assert page.locator("#standing .figure").first.inner_text() == "postgres"
        page.locator("#evidence .answer", has_text=report["verdict"]["answer"]).wait_for()
        assert page.locator("#gates tbody tr").count() == len(report["gates"])
        jobs = [migration.run(kind, "list", "--json").document["jobs"][0]["job"] for kind in ("diff", "backfill")]
        assert page.locator("#jobs tbody th").all_inner_texts() == jobs
        assert "2 COPY" in page.locator("#servers").inner_text()
        page.locator("#groups td").first.wait_for()
        assert "mirror:reverse" in page.locator("#groups").inner_text()
        assert "legacy_ids" in page.locator("#indexes").inner_text()
        assert "phase.set" in page.locator("#control").inner_text()
        assert page.locator("#live-text").inner_text() == "Live"


def test_what_an_operator_changes_comes_without_loading_the_page(
    browser: Browser, client: ConsoleClient, migration: Migration
) -> None:
    with opened(browser, client) as page:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the sections"
        page.locator("#standing [aria-current=step]", has_text="shadow").wait_for()
        page.locator('[data-chart="forward"] .end').wait_for()
        drawn = page.locator('[data-chart="forward"] .main').get_attribute("d")
        migration.run("phase", "set", "dualwrite")
        page.locator("#standing [aria-current=step]", has_text="dualwrite").wait_for()
        migration.run("phase", "set", "shadow")

        moved = """(drawn) => document.querySelector('[data-chart="forward"] .main').getAttribute('d') !== drawn"""
        page.wait_for_function(moved, arg=drawn)
        assert "now" in (page.locator('[data-chart="forward"] svg').get_attribute("aria-label") or "")


def test_axe_finds_nothing_and_nothing_is_wider_than_the_screen(browser: Browser, client: ConsoleClient) -> None:
    with opened(browser, client) as page:
        page.locator("#evidence .answer").wait_for()
        page.locator("#groups td").first.wait_for()
        page.locator('[data-chart="forward"] .end').wait_for()
        assert axe_violations(page) == {}
        assert page.evaluate(WIDER) == []
        page.emulate_media(color_scheme="dark")
        assert axe_violations(page, "color-contrast") == {}
        page.set_viewport_size(PHONE)
        assert page.evaluate(WIDER) == []
        assert axe_violations(page, "color-contrast", "target-size", "scrollable-region-focusable") == {}
        page.evaluate(ALL_OLD)
        assert page.locator("main > section.is-old").count() == page.locator("main > section[data-seconds]").count()
        assert axe_violations(page, "color-contrast") == {}, "what is old can be read"
        page.emulate_media(color_scheme="light")
        assert axe_violations(page, "color-contrast") == {}
        # The control.
        page.evaluate(
            "document.querySelectorAll('[data-chart] svg').forEach((each) => each.removeAttribute('aria-label'))"
        )
        assert "svg-img-alt" in axe_violations(page, "svg-img-alt")


def test_a_mismatch_opens_to_both_bodies_for_the_token(
    browser: Browser, client: ConsoleClient, migration: Migration
) -> None:
    with opened(browser, client) as page:
        page.locator("#mismatches").get_by_role("button", expanded=False).first.focus()
        page.keyboard.press("Enter")
        assert page.locator("#mismatches pre").count() == 0
        field = page.get_by_label("Bodies are shown for the token")
        field.fill(client.token)
        page.evaluate("() => load('mismatches')")
        page.evaluate("() => { byId('mirror').shownText = ''; return load('mirror'); }")
        assert field.input_value() == client.token, "a list does not come anew where an operator types"
        assert field.evaluate("(field) => field === document.activeElement"), "nor does another one take its place"
        page.keyboard.press("Enter")
        page.locator("#mismatches tr.more .side, #mismatches tr.more td > p").first.wait_for()

        sides = [each.inner_text() for each in page.locator("#mismatches .side").all()]
        assert [text.split()[0] for text in sides] == ["postgres", "schemaless"]
        assert '"status": "<b>taken</b>"' in page.locator("#mismatches .side.new mark").first.inner_text()
        assert '\n  "status"' in page.locator("#mismatches .side.new pre").inner_text(), "a line for each name"
        assert page.locator("#mismatches b").count() == 0
        (row_key, *_) = migration.row_keys()
        shown = page.locator("#mismatches .command").first.inner_text()
        assert shown.startswith(f"tripstore mirror show {row_key}/BASE/")
        assert str(row_key) in migration.run(*shown.split()[1:]).stdout, "the command can be run as it is"
        assert axe_violations(page) == {}
        page.locator("#mismatches").get_by_role("button", expanded=True).click()
        assert page.locator("#mismatches pre").count() == 0


def test_what_is_added_to_the_page_does_not_run(browser: Browser, client: ConsoleClient) -> None:
    context = browser.new_context()
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.goto(str(client.base_url))

    page.evaluate("document.body.append(Object.assign(document.createElement('script'), {text: 'document.title = 1'}))")

    assert "tripstore console" in page.title()
    assert any("Content Security Policy" in each for each in said)
    context.close()


def test_only_the_names_of_loopback_and_only_reading(client: ConsoleClient) -> None:
    assert client.get("/mismatches/1").status_code == 401
    for path in ("/", "/events", "/sections/standing", "/console.js"):
        assert client.get(path, headers={"Host": "evil.example"}).status_code == 403, path
    assert client.post("/", content=b"").status_code == 405
    assert client.get("/sections/../tripstore.yaml").status_code == 404
    assert client.get("/sections/jobs?page=99999999999").status_code == 200


def test_it_says_what_it_is_at_before_it_has_read_its_configuration(migration: Migration) -> None:
    """The configuration comes by a pipe, which nothing is written to before the line is there."""
    folder = migration.shell.folder
    os.mkfifo(folder / "slow.yaml")
    process = migration.shell.start("-c", "slow.yaml", "console", "--port", "0")
    try:
        assert process.stderr is not None, "it is a pipe"
        assert process.stderr.readline() == "Starting: loads the page and reads slow.yaml.\n"
        (folder / "slow.yaml").write_text((folder / "tripstore.yaml").read_text())
        assert process.stderr.readline().startswith("Listening at http://127.0.0.1:")
    finally:
        process.terminate()
        process.communicate(timeout=60)
        (folder / "slow.yaml").unlink()


def test_elsewhere_it_wants_tls_and_a_token(migration: Migration) -> None:
    refused = migration.run("console", "--host", "0.0.0.0", code=2)
    assert "Without TLS the console does not listen at 0.0.0.0." in refused.complaint

    certified(migration.shell.folder)
    tls = ("--host", "0.0.0.0", "--certificate", "front.crt", "--key", "front.key")
    trusted = ssl.create_default_context(cafile=str(migration.shell.folder / "front.crt"))
    trusted.check_hostname = False
    with console_of(migration.shell, *tls, trusted=trusted) as client:
        origin = str(client.base_url).rstrip("/")
        ours = {HEADER: "1", "Origin": origin}
        assert 'id="login"' in client.get("/").text
        assert [client.get(f"/{path}").status_code for path in ("events", "sections/standing")] == [401, 401]
        assert client.post("/session", json={"token": "guess"}, headers=ours).status_code == 401
        assert client.post("/session", json={"token": client.token}).status_code == 403
        assert client.post("/session", json={"token": client.token}, headers=ours).status_code == 200
        assert 'id="standing"' in client.get("/").text
        assert client.get("/sections/standing").status_code == 200


def test_servers_that_are_dead_cost_their_sections_alone_and_no_secret_is_shown(
    browser: Browser, migration: Migration, tmp_path: Path
) -> None:
    port = free_port()
    dead = f"postgresql://app:pl%40{PLANTED}@127.0.0.1:{port}/company"
    clusters = migration.config["clusters"] | {"b": {"primary": f"mysql://app:pl%40{PLANTED}@127.0.0.1:{port}"}}
    shutil.copytree(migration.shell.folder, tmp_path / "own")
    own = Migration(Shell(tmp_path / "own"), dead)
    own.configure(clusters=clusters)
    with console_of(own.shell) as client:
        begun = time.monotonic()
        first = client.get("/").text
        assert time.monotonic() - begun < FIRST_PAINT_SECONDS
        with opened(browser, client) as page:
            page.locator("#standing-trouble:not([hidden])").wait_for()
            page.locator("#mirror-trouble:not([hidden])").wait_for()
            page.locator("#servers td").first.wait_for()
            page.locator("#evidence .notice").first.wait_for()
            shown = page.content()
            assert "✕ down" in page.locator("#servers").inner_text()
            assert "✓ up" in page.locator("#servers").inner_text()
            assert page.locator("#jobs td").count() > 0, "the control database is alive"
            assert "in-trouble" in (page.locator('[data-for="standing"]').get_attribute("class") or "")
        told = [first, shown, *(client.get(f"/sections/{name}").text for name in ("standing", "evidence", "servers"))]
    assert [each for each in told if PLANTED in each] == []
    release(port)


def test_a_postgres_that_says_nothing_holds_up_its_sections_alone(
    browser: Browser, migration: Migration, tmp_path: Path
) -> None:
    shutil.copytree(migration.shell.folder, tmp_path / "own")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        own = Migration(Shell(tmp_path / "own"), f"postgresql://app@127.0.0.1:{silent.getsockname()[1]}/company")
        own.configure()
        with console_of(own.shell) as client, opened(browser, client) as page:
            page.locator("#servers td").first.wait_for()
            page.locator("#jobs td").first.wait_for()
            begun = time.monotonic()
            assert client.get("/").status_code == 200
            assert time.monotonic() - begun < FIRST_PAINT_SECONDS
            page.locator("#standing-trouble:not([hidden])").wait_for()


def test_a_console_goes_by_the_layout_in_force_and_holds_up_no_switch(
    servers: LocalServers, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    own = copied(migration_template(servers, tmp_path_factory), tmp_path / "own")
    now = [0.0]
    stores = ConsoleStores(Settings(own.shell.folder / "tripstore.yaml"), lambda: now[0])
    (mirror,) = [each for each in sections_of(stores) if each.name == "mirror"]
    try:
        mirror.look(stores)
        changed = document()
        changed["columns"]["STATUS"]["ref_key"] = {"column": "attempt_no", "version": "attempt_version"}
        (own.shell.folder / "layout.yaml").write_text(yaml.safe_dump(changed))
        own.run("schema", "apply")
        assert not passes_layouts(own), "the control: its sessions are of the former layout"
        now[0] += LAYOUT_SECONDS
        mirror.look(stores)

        assert stores.both.legacy.layout.columns["STATUS"].ref_key.column == "attempt_no"
        assert passes_layouts(own)
    finally:
        stores.close()


def passes_layouts(migration: Migration) -> bool:
    (gate,) = [
        each
        for each in migration.run("cutover", "plan", "--json", code=4).document["gates"]
        if each["name"] == "layouts"
    ]
    return bool(gate["is_passed"])
