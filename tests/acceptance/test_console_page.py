"""What the page of a console does beside what it shows: streams that end, clocks that differ, plans that grow old."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.acceptance.conftest import Shell
from tests.consoles import ConsoleClient, console_of, left_alone, opened
from tests.hands import Hands
from tripstore.cli.console.access import HEADER
from tripstore.local.ports import free_port

CHANGES = "--allow-changes"
#: As after a time in which the page heard nothing.
SILENCE = "() => { const former = events; heardAt -= 1000 * (BEAT_SECONDS + 1); tick(); return events !== former; }"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleClient]:
    shell = Shell(tmp_path_factory.mktemp("page"))
    begin_store(shell)
    with console_of(shell, CHANGES) as client:
        yield client


def begin_store(shell: Shell) -> None:
    assert shell.call("init", "--shards", "4").code == 0
    assert shell.call("schema", "apply").code == 0


def has_looked(page: Page) -> None:
    page.locator("#servers td").first.wait_for()


@pytest.mark.parametrize("hours", [-1, 1])
def test_ages_go_by_the_clock_of_the_console(browser: Browser, client: ConsoleClient, hours: int) -> None:
    """The control is a section that is old by that clock."""
    with opened(browser, client) as page:
        page.add_init_script(f"const real = Date.now; Date.now = () => real() + {hours} * 3600e3;")
        page.reload()
        has_looked(page)
        page.locator("#live.is-live").wait_for()

        assert page.evaluate("() => { tick(); return document.querySelectorAll('.is-old').length; }") == 0
        old = """() => {
            events.close();
            byId("servers").querySelector(".as-of").dataset.at = new Date(consoleNow() - 600e3).toISOString();
            tick();
            return [...document.querySelectorAll("section.is-old")].map((each) => each.id);
        }"""
        assert page.evaluate(old) == ["servers"]


def test_a_stream_that_fell_silent_is_begun_anew(browser: Browser, client: ConsoleClient) -> None:
    """A network that went away in silence ends none."""
    with opened(browser, client) as page:
        page.locator("#live.is-live").wait_for()
        assert page.evaluate(SILENCE)
        page.locator("#live.is-live").wait_for()
        assert page.evaluate("() => { const former = events; tick(); return events === former; }"), "the control"


def test_a_page_has_one_stream_however_often_it_lost_one(browser: Browser, client: ConsoleClient) -> None:
    with left_alone(browser, client) as page:
        page.clock.install()
        page.reload()
        page.locator("#live.is-live").wait_for()
        page.evaluate(
            "async () => { const lost = events; lost.close(); const said = lost.onerror(); begin(); await said; }"
        )
        second = page.evaluate_handle("events")
        page.clock.run_for(10_000)

        assert page.evaluate("(second) => events === second", second), "a third one would draw each point twice"


def test_a_text_that_an_operator_marks_stays_until_it_is_copied(browser: Browser, client: ConsoleClient) -> None:
    come = "() => { const section = byId('servers'); section.shownText = ''; return load('servers'); }"
    with opened(browser, client) as page:
        has_looked(page)
        page.evaluate("document.getSelection().selectAllChildren(document.querySelector('#servers tbody'))")
        marked = page.evaluate("document.getSelection().toString()")
        page.evaluate(come)
        assert page.evaluate("document.getSelection().toString()") == marked != ""

        former = page.evaluate_handle("document.querySelector('#servers tbody')")
        page.evaluate("document.getSelection().removeAllRanges()")
        page.evaluate(come)
        assert page.evaluate("(former) => !former.isConnected", former), "the control: now it comes anew"


def test_the_focus_stays_in_a_list_whose_first_page_is_reached(browser: Browser, client: ConsoleClient) -> None:
    with opened(browser, client) as page:
        focused = """() => {
            const pager = document.createElement("nav");
            const button = (id) => Object.assign(document.createElement("button"), { id });
            const [newer, older] = ["newer", "older"].map(button);
            pager.append(newer, older);
            byId("main").append(pager);
            newer.disabled = true;
            return [again(newer).id, again(older).id];
        }"""
        assert page.evaluate(focused) == ["older", "older"]


def test_a_chart_that_another_console_knows_nothing_of_goes(browser: Browser, client: ConsoleClient) -> None:
    with opened(browser, client) as page:
        page.locator('[data-chart="rows"] .end').wait_for()
        anew = "() => events.dispatchEvent(new MessageEvent('all', { data: '{\"charts\": [], \"sections\": []}' }))"
        page.evaluate(f"() => {{ ({anew})(); ageCharts(); }}")
        assert page.locator("[data-chart]").count() == 0, "it would say that its last point is of 00:00:00"


def test_the_token_given_twice_by_one_browser_leaves_its_first_page_its_seal(client: ConsoleClient) -> None:
    headers = {HEADER: "1", "Origin": str(client.base_url).rstrip("/")}
    first, second = (client.post("/session", json={"token": client.token}, headers=headers).json() for _ in range(2))

    assert first == second


def test_an_old_plan_is_shown_anew_before_it_can_be_confirmed(browser: Browser, client: ConsoleClient) -> None:
    with opened(browser, client) as page:
        hands = Hands(page, client.token)
        hands.open("fsck")
        assert hands.planned()
        page.evaluate("acting.plannedAt -= 1000 * PLAN_SECONDS")
        hands.dialog.locator("input[name=typed]").fill("trips")
        hands.dialog.locator("#act-do button").click()
        hands.dialog.locator(".trouble", has_text="The plan was old, so nothing was changed.").wait_for(timeout=60_000)
        assert hands.planned()
        assert page.locator("#changes [data-open-run]").count() == 0
        hands.confirm("trips")
        assert hands.verdict() == "✓ Done"


def test_what_a_command_says_stays_where_it_is_read(browser: Browser, client: ConsoleClient) -> None:
    with opened(browser, client) as page:
        hands = Hands(page, client.token)
        hands.open("fsck")
        said = """(end) => replace(acting, `<div id="act-run" data-ended="no"><pre class="said" tabindex="0">${
            [...Array(200).keys()].join("\\n")}${end}</pre></div>`)"""
        page.evaluate(said, "first")
        page.evaluate("document.querySelector('#act-run .said').scrollTop = 50")
        page.evaluate(said, "second")

        assert "second" in hands.dialog.inner_text()
        assert page.evaluate("document.querySelector('#act-run .said').scrollTop") == 50


def test_another_console_asks_for_its_token_where_the_page_has_that_of_the_former(
    browser: Browser, shell: Shell
) -> None:
    begin_store(shell)
    port = str(free_port())
    with console_of(shell, CHANGES, "--port", port) as first, left_alone(browser, first) as page:
        Hands(page, first.token).open("fsck")
        page.keyboard.press("Escape")
        first.process.terminate()
        first.process.wait(20)
        with console_of(shell, CHANGES, "--port", port) as second:
            page.locator("#live.is-live").wait_for()
            hands = Hands(page, second.token)
            hands.open("fsck")
            assert hands.planned()
