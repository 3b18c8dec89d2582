"""`tripstore console --allow-changes`: the whole migration by mouse, and what happens when something dies half-way."""

from __future__ import annotations

import json
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from schemaless_core import Cell
from schemaless_core.control.audit import AuditEntry, AuditLog
from schemaless_core.failpoints import ENVIRONMENT_VARIABLE
from tests.acceptance.migrations import Migration, copied, migration_template
from tests.browsers import WIDER
from tests.chaos.actors import wait_until
from tests.consoles import DESK, PHONE, axe_violations, console_of, left_alone, opened
from tests.hands import Hands
from tripstore.handover import settle, switch
from tripstore.handover.steps import Step
from tripstore.local.servers import LocalServers

#: Each time another row, or it would be no change.
WRITE = """\
UPDATE trips SET status = (CASE status WHEN 'completed' THEN 'requested' ELSE 'completed' END)::trip_status
WHERE id = 1"""
DONE = "✓ Done"
CHANGES = "--allow-changes"


@pytest.fixture(scope="module")
def ready(servers: LocalServers, tmp_path_factory: pytest.TempPathFactory) -> Migration:
    """All that a switch asks for is there but a worker that serves: another one than this is copied from it."""
    made = copied(migration_template(servers, tmp_path_factory), tmp_path_factory.mktemp("ready") / "own")
    made.run("phase", "set", "dualwrite")
    with made.worker():
        made.run("phase", "set", "shadow")
        serve(made)
        made.note_jobs()
        made.run("index", "verify", "legacy_ids")
        wait_until("every gate passes", lambda: passes(made), seconds=60)
    return made


@pytest.fixture
def switchable(ready: Migration, tmp_path: Path) -> Migration:
    return copied(ready, tmp_path / "own")


@pytest.fixture
def migration(servers: LocalServers, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Migration:
    return copied(migration_template(servers, tmp_path_factory), tmp_path / "own")


def in_phase(page: Page, phase: str) -> None:
    """The page says so, without being loaded again."""
    page.locator("#standing [aria-current=step]", has_text=phase).wait_for()


def job_is_done(page: Page, kind: str, number: int = 1) -> None:
    rows = page.locator("#jobs tbody tr", has_text=kind).filter(has_text="✓ done")
    expect(rows).to_have_count(number, timeout=60_000)


def serve(migration: Migration) -> None:
    """A service writes by SQL, and reads."""
    migration.ask(WRITE)
    migration.wait_until_mirrored()
    migration.compare_reads()


def passes(migration: Migration) -> bool:
    serve(migration)
    return migration.shell.call("cutover", "plan").code == 0


def put(migration: Migration, note: str) -> None:
    (row_key, *_) = migration.row_keys()
    latest = first_trip(migration)
    assert isinstance(latest.body, dict)
    with migration.store() as store:
        store.put_cell(row_key, "BASE", latest.ref_key + 1, {**latest.body, "note": note})


def note_of(migration: Migration) -> object:
    body = first_trip(migration).body
    assert isinstance(body, dict)
    return body["note"]


def first_trip(migration: Migration) -> Cell:
    (row_key, *_) = migration.row_keys()
    with migration.store() as store:
        latest = store.get_cell_latest(row_key, "BASE")
    assert latest is not None
    return latest


def audited(migration: Migration) -> list[AuditEntry]:
    """The oldest first."""
    with migration.datastore() as datastore:
        return list(reversed(AuditLog(datastore.control).newest(200)))


def switch_by_mouse(hands: Hands, migration: Migration) -> None:
    """To the click that begins it."""
    hands.open("switch")
    hands.look_again_until_it_passes(lambda: serve(migration))
    hands.confirm("schemaless", why="all gates pass")


@pytest.mark.long
def test_the_whole_migration_goes_by_mouse(browser: Browser, migration: Migration) -> None:
    with (
        migration.worker(),
        console_of(migration.shell, CHANGES) as client,
        opened(browser, client) as page,
    ):
        hands = Hands(page, client.token)
        assert hands.do("phase", "dualwrite", chosen="dualwrite", why="capture stands") == DONE
        in_phase(page, "dualwrite")
        assert hands.do("backfill", "trips") == DONE
        job_is_done(page, "backfill")
        assert hands.do("diff", "trips") == DONE
        job_is_done(page, "diff")
        assert hands.do("phase", "shadow", chosen="shadow") == DONE
        in_phase(page, "shadow")

        hands.open("switch")
        hands.look_again_until_it_passes(lambda: serve(migration))
        hands.confirm("schemaless", why="all gates pass")
        assert hands.verdict() == DONE
        assert "schemaless is the authority at epoch 2" in hands.dialog.inner_text()
        assert "To take it back: Reverse… here" in hands.dialog.inner_text()
        hands.close()
        in_phase(page, "live")
        assert migration.authority == "schemaless"
        put(migration, "through Schemaless")

        hands.open("reverse")
        hands.look_again_until_it_passes(lambda: None)
        hands.confirm("postgres", why="a rehearsal")
        assert hands.verdict() == DONE
        hands.close()
        in_phase(page, "shadow")
        assert note_of(migration) == "through Schemaless"

        assert hands.do("diff", "trips") == DONE
        job_is_done(page, "diff", 2)
        hands.open("switch")
        hands.look_again_until_it_passes(lambda: serve(migration))
        hands.confirm("schemaless", why="for good")
        assert hands.verdict() == DONE
        hands.close()
        assert hands.do("phase", "rampdown", chosen="rampdown") == DONE
        hands.open("complete")
        hands.look_again_until_it_passes(lambda: None)
        hands.confirm("trips", why="a month without a mismatch")
        assert hands.verdict() == DONE
        assert "The migration of trips is complete" in hands.dialog.inner_text()
        hands.close()
        in_phase(page, "complete")
    lines = audited(migration)
    assert [each.action for each in lines].count("cutover.switch.end") == 2
    assert [each.action for each in lines].count("cutover.reverse.end") == 1
    assert len({(each.who, each.host) for each in lines}) == 1, "the page's actor is that of the shell"
    assert "capture stands" in next(each.detail for each in lines if each.action == "phase.set")


def test_dialogs_read_well_everywhere_and_by_keyboard(browser: Browser, switchable: Migration) -> None:
    """axe finds nothing in the form, the plan that refuses, the plan that passes, and the result."""
    with console_of(switchable.shell, CHANGES) as client, opened(browser, client) as page, ExitStack() as works:
        hands = Hands(page, client.token)
        hands.open("switch")
        assert not hands.planned(), "no worker serves the reverse mirror"
        assert "rehearsal" in hands.dialog.inner_text()
        assert "tripstore worker run" in hands.dialog.inner_text(), "the way out"
        assert "tripstore cutover switch --force" in hands.dialog.inner_text()
        reads_well(page)
        works.enter_context(switchable.worker())
        hands.look_again_until_it_passes(lambda: serve(switchable))
        assert page.evaluate("document.activeElement.name") == "why"
        reads_well(page)
        page.keyboard.press("Tab")
        page.keyboard.type("schemaless")
        page.keyboard.press("Enter")
        assert hands.verdict() == DONE
        reads_well(page)
        page.keyboard.press("Escape")
        hands.dialog.wait_for(state="hidden")
        assert page.evaluate("document.activeElement.id") == "act-switch", "the focus is where it was"
        page.locator("#changes [data-open-run]", has_text="Switch").click()
        assert hands.verdict() == DONE
        assert "schemaless is the authority" in hands.dialog.inner_text()


def reads_well(page: Page) -> None:
    assert axe_violations(page) == {}
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size(PHONE)
        assert axe_violations(page, "color-contrast", "target-size", "scrollable-region-focusable") == {}
        assert page.evaluate(WIDER) == []
        page.set_viewport_size(DESK)
        assert axe_violations(page, "color-contrast") == {}


def test_two_operators_who_click_switch_at_once_make_one_switch(browser: Browser, switchable: Migration) -> None:
    with (
        switchable.worker(),
        console_of(switchable.shell, CHANGES) as client,
        opened(browser, client) as first,
        opened(browser, client) as second,
    ):
        both = [Hands(page, client.token) for page in (first, second)]
        for hands in both:
            hands.open("switch")
            hands.look_again_until_it_passes(lambda: serve(switchable))
            hands.dialog.locator("input[name=typed]").fill("schemaless")
        for hands in both:
            hands.dialog.locator("#act-do button").click()
        verdicts = [hands.verdict() for hands in both]
        said = [hands.dialog.inner_text() for hands in both]

    assert verdicts.count(DONE) == 1, said
    # The other one waited, and a gate refused it; or it found the row closing, and has done nothing.
    assert all("authority" in each for each in said), said
    outcomes = [
        json.loads(each.detail)["outcome"] for each in audited(switchable) if each.action == "cutover.switch.end"
    ]
    assert outcomes.count("decided") == 1
    assert switchable.authority == "schemaless"
    assert switchable.run("cutover", "status", "--json").document["authority"]["epoch"] == 2


@pytest.mark.parametrize("ended", [None, signal.SIGKILL, signal.SIGTERM], ids=["browser", "killed", "asked"])
def test_a_switch_goes_on_when_the_browser_or_the_console_ends_half_way(
    browser: Browser, switchable: Migration, failpoints: Path, ended: signal.Signals | None
) -> None:
    switchable.configure(mirror={"max_pause_seconds": 20.0})
    armed = {ENVIRONMENT_VARIABLE: str(failpoints)}
    with switchable.worker(), console_of(switchable.shell, CHANGES, environment=armed) as client:
        (failpoints / switch.SHUT.name).write_text("wait")
        with left_alone(browser, client) as page:
            switch_by_mouse(Hands(page, client.token), switchable)
            wait_until("the switch is half way", (failpoints / f"{switch.SHUT.name}.hit").exists, 30)
            assert "▸ At work" in page.locator("#act-run").inner_text()
            if ended is not None:
                client.process.send_signal(ended)
                said = client.process.communicate(timeout=30)[1]
                page.locator("#act-body .trouble", has_text="goes on without it").wait_for()
        if ended is signal.SIGTERM:
            assert "`tripstore cutover switch --json --yes '--why=all gates pass'` goes on without the console." in said
        (failpoints / f"{switch.SHUT.name}.go").touch()
        wait_until("the switch is done", lambda: switchable.authority == "schemaless", 30)

        with ExitStack() as next_one:
            running = client
            if ended is not None:
                running = next_one.enter_context(console_of(switchable.shell, CHANGES))
            again = next_one.enter_context(opened(browser, running))
            in_phase(again, "live")
            row = again.locator("#changes tbody tr", has_text=DONE).filter(has_text="Switch")
            expect(row).to_have_count(int(ended is None))
    assert switchable.run("cutover", "status", "--json").document["is_fine"] is True


@pytest.mark.parametrize("step", [switch.SHUT, settle.OPEN], ids=lambda step: step.name)
def test_i9_a_console_that_is_killed_in_a_switch_leaves_nothing_undone(
    browser: Browser, switchable: Migration, failpoints: Path, step: Step
) -> None:
    """Its command is killed with it; the next command of a shell, or of another console, settles what is left."""
    armed = {ENVIRONMENT_VARIABLE: str(failpoints)}
    with switchable.worker(), console_of(switchable.shell, CHANGES, environment=armed) as client:
        (failpoints / step.name).write_text("kill")
        with left_alone(browser, client) as page:
            switch_by_mouse(Hands(page, client.token), switchable)
            wait_until("the command is killed", (failpoints / f"{step.name}.hit").exists, 30)
            client.process.kill()
            client.process.wait()
    is_decided = step is settle.OPEN
    assert switchable.authority == ("schemaless" if is_decided else "postgres")

    with switchable.worker(), console_of(switchable.shell, CHANGES) as client, opened(browser, client) as page:
        hands = Hands(page, client.token)
        if is_decided:
            in_phase(page, "live")
        else:
            switch_by_mouse(hands, switchable)
            assert hands.verdict() == DONE
        wait_until("nothing is left", lambda: switchable.shell.call("cutover", "status").code == 0, 30)
    assert switchable.authority == "schemaless"


def test_a_command_that_is_killed_says_so_and_what_settles_it(
    browser: Browser, switchable: Migration, failpoints: Path
) -> None:
    armed = {ENVIRONMENT_VARIABLE: str(failpoints)}
    with switchable.worker(), console_of(switchable.shell, CHANGES, environment=armed) as client:
        (failpoints / switch.SHUT.name).write_text("kill")
        with opened(browser, client) as page:
            hands = Hands(page, client.token)
            switch_by_mouse(hands, switchable)
            assert hands.verdict() == f"✕ Killed by signal {signal.SIGKILL:d}"
            assert "so does the next Switch…" in hands.dialog.inner_text()
            hands.close()

            switch_by_mouse(hands, switchable)
            assert hands.verdict() == DONE


def test_a_repair_shows_how_far_it_is_and_what_it_made_right(
    browser: Browser, switchable: Migration, failpoints: Path
) -> None:
    (row_key, *_) = switchable.row_keys()
    latest = first_trip(switchable)
    with switchable.datastore() as datastore:
        datastore.as_copier().put_cells([Cell(row_key, "BASE", latest.ref_key + 1, {"status": "taken"})])
    switchable.run("diff", "start", "--no-indexes", code=1)
    armed = {ENVIRONMENT_VARIABLE: str(failpoints)}
    with switchable.worker(), console_of(switchable.shell, CHANGES, environment=armed) as client:
        (failpoints / "repair.before_save").write_text("wait")
        with opened(browser, client) as page:
            hands = Hands(page, client.token)
            page.locator("#jobs tbody th", has_text="diff-").first.wait_for()
            hands.open("repair")
            assert str(row_key) in hands.dialog.inner_text(), "the plan names the cell"
            hands.confirm("trips")
            page.locator("#jobs .job", has_text="repair-").filter(has_text="▸ running").wait_for(state="attached")
            assert "▸ At work" in page.locator("#act-run").inner_text()
            (failpoints / "repair.before_save.go").touch()
            assert hands.verdict() == DONE
            assert "equal, 0 left to a person" in hands.dialog.inner_text()
