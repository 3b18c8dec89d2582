"""The pictures of the pages: taken of a migration on real servers, and of what is shown today.

`make screenshots` keeps them in docs/images, with the headings that each shows. A heading that came or went since fails
a test: the picture is of another version.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from playwright.sync_api import Browser, Page, ViewportSize

from schemaless_core import Cell
from tests.acceptance.migrations import CUTOVER, Migration, copied, migration_template
from tests.consoles import console_of
from tests.documents import DOCS, PAGES
from tests.promoted import promotable
from tripstore.local.servers import LocalServers

IMAGES = DOCS / "images"
HEADINGS = "headings.json"
DESK, PHONE = ViewportSize(width=1280, height=860), ViewportSize(width=400, height=860)
WAIT_MILLISECONDS = 60_000
BYTES_MAX = 300_000
TRIPS = 300
_PICTURE = re.compile(r"!\[([^\]]+)\]\((?:\.\./)*images/([\w-]+)\.png\)")
_SHOWN = "() => [...document.querySelectorAll('h1, h2')].map((each) => each.innerText.trim())"
_MOVED = """(drawn) => document.querySelector('[data-chart="forward"] .main').getAttribute('d') !== drawn"""
#: What a page says that is of the machine on which it was made.
OPERATOR, HOST = "ada", "ops1"


class Taken(NamedTuple):
    """The folder with the pictures, and all that the pages said."""

    folder: Path
    text: str


@pytest.fixture(scope="module")
def migration(servers: LocalServers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Migration]:
    """In phase shadow: some reads were compared, and one row is not as it should be."""
    made = copied(migration_template(servers, tmp_path_factory), tmp_path_factory.mktemp("pictures") / "own")
    with (
        pytest.MonkeyPatch.context() as patched,
        promotable("mariadb", tmp_path_factory.mktemp("beside") / "control", replicas=1, datastore="beside") as stores,
    ):
        patched.setattr("getpass.getuser", lambda: OPERATOR)
        patched.setattr(socket, "gethostname", lambda: HOST)
        made.configure(
            clusters=stores.document["clusters"],
            control=f"{stores.other.url}/trips_control",
            cutover={**CUTOVER, "comparisons_min": 50, "mismatch_rate_max": 0.05},
        )
        made.ask(f"INSERT INTO trips (driver_id) SELECT 1 + n % 3 FROM generate_series(1, {TRIPS}) AS n")
        made.run("schema", "apply")
        made.run("phase", "set", "dualwrite")
        made.run("mirror", "drain")
        made.run("backfill", "start")
        made.run("phase", "set", "shadow")
        made.compare_reads(40)
        with made.datastore() as datastore:
            latest = datastore.get_cell_latest(made.row_keys()[0], "BASE")
            assert latest is not None
            taken = Cell(latest.row_key, "BASE", latest.ref_key + 1, {"status": "completed", "fare": 12.5})
            datastore.as_copier().put_cells([taken])
        made.run("diff", "start", "--no-indexes", code=1)
        made.run("report", "-o", "report.html", code=4)
        yield made


@pytest.fixture(scope="module")
def taken(browser: Browser, migration: Migration, tmp_path_factory: pytest.TempPathFactory) -> Taken:
    folder = tmp_path_factory.mktemp("images")
    headings: dict[str, list[str]] = {}
    said = ""
    page = browser.new_page(viewport=DESK)
    page.set_default_timeout(WAIT_MILLISECONDS)

    def take(name: str) -> None:
        nonlocal said
        page.screenshot(path=folder / f"{name}.png")
        headings[name] = page.evaluate(_SHOWN)
        said += page.locator("body").inner_text()

    with migration.worker(), console_of(migration.shell) as client:
        page.goto(str(client.base_url))
        _fill(page, migration)
        take("console")
        page.emulate_media(color_scheme="dark")
        page.set_viewport_size(PHONE)
        take("console-phone")
        page.set_viewport_size(DESK)
        page.emulate_media(color_scheme="light")
        page.locator("#evidence .answer").wait_for()
        page.evaluate("document.querySelector('#evidence').scrollIntoView({behavior: 'instant'})")
        take("console-evidence")
    page.goto((migration.shell.folder / "report.html").as_uri())
    take("report")
    page.close()
    (folder / HEADINGS).write_text(json.dumps(headings, indent=2, ensure_ascii=False) + "\n")
    if kept := os.environ.get("TRIPSTORE_SCREENSHOTS"):
        shutil.copytree(folder, kept, dirs_exist_ok=True)
    return Taken(folder, said)


def _fill(page: Page, migration: Migration) -> None:
    """Charts have a line once something has moved under an open page."""
    for section in ("evidence .answer", "jobs td", "groups td", "servers td", "indexes td"):
        page.locator(f"#{section}").first.wait_for()
    chart = page.locator('[data-chart="forward"] .main')
    chart.wait_for(state="attached")
    for _ in range(4):
        drawn = chart.get_attribute("d")
        migration.ask("INSERT INTO trips (driver_id) SELECT 1 + n % 3 FROM generate_series(1, 20) AS n")
        page.wait_for_function(_MOVED, arg=drawn)


def test_a_picture_shows_nothing_of_the_machine_on_which_it_was_taken(taken: Taken, migration: Migration) -> None:
    machine = {Path("/etc/hostname").read_text().strip(), str(migration.shell.folder), tempfile.gettempdir()}

    assert [each for each in machine if each and each in taken.text] == []
    assert OPERATOR in taken.text, "the control: who changed what is shown"


def test_each_picture_of_a_page_is_of_what_is_shown_today(taken: Taken) -> None:
    """The control: `headings.json` would name what came or went. After a change of a page: `make screenshots`."""
    assert json.loads((IMAGES / HEADINGS).read_text()) == json.loads((taken.folder / HEADINGS).read_text())
    assert pictures(IMAGES).keys() == pictures(taken.folder).keys()
    assert {name: width for name, (width, _) in pictures(IMAGES).items()} == {
        name: width for name, (width, _) in pictures(taken.folder).items()
    }


def test_every_picture_is_small_and_stands_on_a_page_with_words_for_those_who_do_not_see_it() -> None:
    shown = [
        found
        for page in PAGES
        for found in re.findall(r"!\[([^\]]+)\]\((?:\.\./)*images/([\w-]+)\.png\)", page.read_text())
    ]

    assert {name for _, name in shown} == pictures(IMAGES).keys()
    assert all(len(words) > 20 for words, _ in shown)
    assert [file.name for file in IMAGES.glob("*.png") if file.stat().st_size > BYTES_MAX] == []


def pictures(folder: Path) -> dict[str, tuple[int, int]]:
    """Width and height, as a PNG's head has them."""
    return {file.stem: struct.unpack(">II", file.read_bytes()[16:24]) for file in folder.glob("*.png")}
