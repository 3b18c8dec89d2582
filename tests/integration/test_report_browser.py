"""The page in a real Chromium: it fetches nothing, complains of nothing, sorts, filters, fits phone and paper."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, ViewportSize

from tests.browsers import WIDER
from tests.reports import sample_report
from tests.unit.test_report_page import hostile
from tripstore.engines.validation.report.html import render

DESK, PHONE = ViewportSize(width=1280, height=900), ViewportSize(width=390, height=844)
#: Both sides of the width from which on a row is a card, and the smallest phone.
NARROWER = [ViewportSize(width=width, height=844) for width in (740, 735, 390, 320)]
OVERLAP = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
UNREACHABLE = """() => [...document.querySelectorAll('a[href], button, input, select')]
    .filter((each) => each.tabIndex !== 0).map((each) => each.outerHTML)"""
NAMELESS = """() => [...document.querySelectorAll('button, input, select')]
    .filter((each) => !(each.ariaLabel || each.textContent.trim() || each.labels.length))
    .map((each) => each.outerHTML)"""
CUT_OFF = """() => [...document.querySelectorAll('.scroll')]
    .filter((each) => each.scrollWidth > each.clientWidth + 1).length"""
#: What does not come at once does not come.
WAIT_MILLISECONDS = 10_000

Opener = Callable[..., Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("report")
    (made / "report.html").write_text(render(sample_report(with_bodies=True)))
    (made / "hostile.html").write_text(render(hostile(sample_report(with_bodies=True))))
    return made


@pytest.fixture
def opened(browser: Browser, folder: Path) -> Opener:
    @contextmanager
    def opening(name: str = "report.html", **options: Any) -> Iterator[Page]:
        """A page that asked for nothing and complained of nothing, from beginning to end."""
        context = browser.new_context(**({"viewport": DESK} | options))
        page = context.new_page()
        page.set_default_timeout(WAIT_MILLISECONDS)
        complaints: list[str] = []
        asked: list[str] = []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        page.on("request", lambda request: asked.append(request.url))
        address = (folder / name).as_uri()
        page.goto(address)
        yield page
        context.close()
        assert complaints == []
        assert {url.partition("#")[0] for url in asked} - {"data:,"} == {address}

    return opening


def texts(page: Page, section: str, number: int) -> list[str]:
    """What stands in a column, top to bottom, as far as it is shown."""
    script = """([section, number]) => [...document.querySelectorAll(`#${section} tbody > tr:not(.more)`)]
        .filter((row) => row.offsetParent !== null).map((row) => row.cells[number].innerText.trim())"""
    found: list[str] = page.evaluate(script, [section, number])
    return found


def test_it_says_the_verdict_and_fetches_nothing(opened: Opener) -> None:
    with opened() as page:
        assert page.get_by_role("heading", level=1).inner_text() == "Ready to switch to Schemaless?"
        assert page.get_by_text("5 of 16 gates refuse.").is_visible()
        assert page.title().startswith("Ready to switch")


def test_a_page_that_would_fetch_is_caught(browser: Browser, folder: Path) -> None:
    """The control: the policy stops it, and the browser says so."""
    page = browser.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    bad = folder / "bad.html"
    text = (folder / "report.html").read_text().replace("<main", "<script>document.title = 'taken'</script><main", 1)
    bad.write_text(text)

    page.goto(bad.as_uri())

    assert page.title().startswith("Ready to switch")
    assert any("Content Security Policy" in each for each in said)
    page.close()


def test_tables_sort_up_and_down_by_number_and_by_text(opened: Opener) -> None:
    with opened() as page:
        calls = page.locator("#operations").get_by_role("columnheader", name="Calls")
        calls.get_by_role("button").click()
        rising = [int(each.replace(",", "")) for each in texts(page, "operations", 1)]
        assert rising == sorted(rising)
        assert rising[0] < 1000 < rising[-1], "as numbers, not as text"
        assert calls.get_attribute("aria-sort") == "ascending"

        calls.get_by_role("button").click()
        assert [int(each.replace(",", "")) for each in texts(page, "operations", 1)] == rising[::-1]
        assert calls.get_attribute("aria-sort") == "descending"

        page.locator("#operations").get_by_role("button", name="Operation").click()
        assert texts(page, "operations", 0) == sorted(texts(page, "operations", 0))
        assert calls.get_attribute("aria-sort") is None


def test_tables_filter_by_words_and_by_choice(opened: Opener) -> None:
    with opened() as page:
        section = page.locator("#mismatches")
        count = section.get_by_role("status")
        assert count.inner_text() == "14 mismatches"

        section.get_by_label("Class").select_option("field")
        assert set(texts(page, "mismatches", 1)) == {"field"}
        section.get_by_label("Filter").fill("STATUS nothing-has-this")
        assert texts(page, "mismatches", 1) == []
        assert count.inner_text() == "0 of 14 mismatches"

        section.get_by_label("Filter").fill("")
        section.get_by_label("Class").select_option("")
        assert len(texts(page, "mismatches", 1)) == 14
        section.get_by_label("Operation").select_option("diff")
        assert len(texts(page, "mismatches", 1)) == 2


def test_a_mismatch_unfolds_by_keyboard_to_its_command_and_both_sides(opened: Opener) -> None:
    with opened() as page:
        first = page.locator("#mismatch-1")
        button = first.get_by_role("button", expanded=False)
        assert not first.get_by_text("tripstore mirror show").is_visible()

        button.focus()
        page.keyboard.press("Enter")

        assert first.get_by_text("tripstore mirror show").is_visible()
        assert first.get_by_role("heading", name="schemaless").is_visible()
        assert first.get_by_text("They differ now as well.").is_visible()
        page.keyboard.press("Space")
        assert not first.get_by_text("tripstore mirror show").is_visible()

        page.locator("#mismatches").get_by_role("button", name="Unfold all").click()
        assert page.locator("#mismatches tr.more").locator("visible=true").count() == 14


def test_sorting_moves_what_is_unfolded_along(opened: Opener) -> None:
    with opened() as page:
        page.locator("#mismatches").get_by_role("button", name="Unfold all").click()
        page.locator("#mismatches").get_by_role("button", name="Found").click()

        orders = "() => [...document.querySelectorAll('#mismatches tbody')].map((each) => [each.id, each.rows[1].id])"
        pairs: list[list[str]] = page.evaluate(orders)

        assert [more for _id, more in pairs] == [f"{id_}-more" for id_, _more in pairs]
        assert pairs[0][0] == "mismatch-14"


def test_a_link_to_a_mismatch_unfolds_it(opened: Opener) -> None:
    with opened() as page:
        page.evaluate("() => { location.hash = '#mismatch-5'; }")

        page.locator("#mismatch-5").get_by_text("tripstore mirror show").wait_for(state="visible")


def test_every_control_can_be_reached_and_seen_by_keyboard(opened: Opener) -> None:
    with opened() as page:
        page.keyboard.press("Tab")
        assert page.evaluate("() => document.activeElement.textContent") == "Skip to the report"
        assert page.evaluate("() => document.activeElement.getBoundingClientRect().left") >= 0
        controls = page.locator("a[href], button, input, select")
        assert controls.count() > 60
        assert page.evaluate(UNREACHABLE) == []
        assert page.evaluate(NAMELESS) == []


@pytest.mark.parametrize("name", ["report.html", "hostile.html"])
def test_nothing_is_wider_than_the_screen(opened: Opener, name: str) -> None:
    with opened(name) as page:
        for box in page.locator(".tools").all():
            for unfold in box.get_by_role("button", name="Unfold all").all():
                unfold.click()
        for viewport in (DESK, *NARROWER):
            page.set_viewport_size(viewport)
            assert page.evaluate(OVERLAP) <= 0, (viewport, page.evaluate(WIDER))


def test_on_a_phone_tables_sort_too(opened: Opener) -> None:
    with opened(viewport=PHONE) as page:
        page.locator("#operations").get_by_role("button", name="Calls").click()

        rising = [int(each.replace(",", "")) for each in texts(page, "operations", 1)]
        assert rising == sorted(rising)


def test_it_is_dark_where_people_want_it_dark(opened: Opener) -> None:
    ground = "() => getComputedStyle(document.body).backgroundColor"
    with opened(color_scheme="dark") as dark, opened(color_scheme="light") as light:
        assert sum(map(int, dark.evaluate(ground)[4:-1].split(","))) < 120
        assert sum(map(int, light.evaluate(ground)[4:-1].split(","))) > 700


def test_on_paper_everything_is_unfolded_light_and_without_controls(opened: Opener) -> None:
    with opened(color_scheme="dark") as page:
        page.emulate_media(media="print")

        assert page.locator("#mismatches tr.more").locator("visible=true").count() == 14
        assert page.get_by_label("Filter").locator("visible=true").count() == 0
        assert page.get_by_role("button", name="Copy").locator("visible=true").count() == 0
        assert page.evaluate("() => getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        paper = page.pdf(format="A4", prefer_css_page_size=True)
        assert paper.startswith(b"%PDF")
        assert 4 <= paper.count(b"/Type /Page\n") <= 20


def test_on_paper_no_table_is_cut_off(opened: Opener) -> None:
    with opened(viewport={"width": 690, "height": 900}) as page:
        page.emulate_media(media="print")

        assert page.evaluate(OVERLAP) <= 0
        assert page.evaluate(CUT_OFF) == 0


def test_without_script_nothing_is_hidden(opened: Opener) -> None:
    with opened(java_script_enabled=False) as page:
        assert page.locator("#mismatch-1").get_by_text("tripstore mirror show").is_visible()
        assert page.locator("button").count() == 0


def test_hostile_texts_do_nothing(opened: Opener) -> None:
    with opened("hostile.html") as page:
        assert page.locator("img").count() == 0
        page.get_by_role("button", name="Unfold all").first.click()
        page.locator("#mismatches").get_by_label("Filter").fill("<script>")
        assert page.locator("#mismatches").get_by_role("status").inner_text() == "14 mismatches"
        assert page.evaluate("() => document.querySelectorAll('script').length") == 1
