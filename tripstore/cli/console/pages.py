"""The page and its sections as HTML. Every text of a database is escaped; scripts and styles are files of ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from markupsafe import Markup

from tripstore.cli.console.changes import ConsoleChanges
from tripstore.cli.console.hub import ConsoleHub
from tripstore.cli.console.mismatches import marked_bodies
from tripstore.cli.console.reader import SectionReader
from tripstore.cli.console.verdicts import verdict_of
from tripstore.cli.jobs.documents import IDLE
from tripstore.engines.validation.report.document import ReportMismatch
from tripstore.engines.validation.report.html import HERE as REPORT
from tripstore.engines.validation.report.html import environment, share_of, sides_now
from tripstore.phase import Phase

FOLDER = Path(__file__).parent / "page"
#: By path. The report's style is the ground of ours.
ASSETS = {
    "/report.css": (REPORT / "page.css", "text/css; charset=utf-8"),
    "/console.css": (FOLDER / "console.css", "text/css; charset=utf-8"),
    "/console.js": (FOLDER / "console.js", "text/javascript; charset=utf-8"),
    "/changes.css": (FOLDER / "changes.css", "text/css; charset=utf-8"),
    "/changes.js": (FOLDER / "changes.js", "text/javascript; charset=utf-8"),
}
ROWS = 25

JOB_TAGS = {
    "done": ("good", "✓"),
    "running": ("", "▸"),
    IDLE: ("bad", "!"),
    "paused": ("warn", "‖"),
    "cancelled": ("bad", "✕"),
}


@dataclass(frozen=True, slots=True)
class ShownPage:
    """One page of a list."""

    rows: Sequence[Any]
    number: int
    pages: int
    total: int


def page_of(rows: Sequence[Any], number: int) -> ShownPage:
    """A page; of a number that is too high, the last one."""
    pages = max(-(-len(rows) // ROWS), 1)
    number = min(max(number, 1), pages)
    return ShownPage(rows[(number - 1) * ROWS : number * ROWS], number, pages, len(rows))


def page_html(hub: ConsoleHub, is_known: bool, seal: str, changes: ConsoleChanges | None) -> bytes:
    """The whole page, with what is seen at this moment.

    `is_known`: the browser has given the token; `seal` is of its session. Without `changes` it only looks.
    """
    readers = [reader for each in hub.sections if (reader := hub.reader(each.name)) is not None]
    return rendered(
        "console.jinja",
        readers=readers,
        is_known=is_known,
        seal=seal,
        has_changes=changes is not None,
        actions_of=lambda section: [] if changes is None else changes.of_section(section),
        datastore=hub.stores.datastore_name,
        is_both=hub.stores.is_both,
        version_of=lambda reader: hub.version(reader.shown),
        body_of=lambda reader: Markup(section_html(reader).decode()),
    )


def login_html() -> bytes:
    """Where a browser gives the token."""
    return rendered("login.jinja")


def mismatch_html(found: ReportMismatch) -> bytes:
    """One mismatch with both bodies beside each other."""
    sides = found.sides or []
    lines = marked_bodies(*(side.body for side in sides)) if len(sides) == 2 else ([], [])
    return rendered("mismatch.jinja", found=found, lines=lines, sides_now=sides_now, report=found)


def compile_templates() -> None:
    """So that the first page does not wait for it."""
    made = environment(FOLDER)
    for name in made.list_templates(["jinja"]):
        made.get_template(name)


def section_html(reader: SectionReader, page: int = 1) -> bytes:
    """What a section shows, without its head."""
    seen = reader.shown.document
    if seen is None:
        return b""
    values = {
        "phases": [str(each) for each in Phase],
        "seen": seen,
        "report": seen,
        "share_of": share_of,
        "job_tags": JOB_TAGS,
        "verdict_of": verdict_of,
    }
    return rendered(f"{reader.section.name}.jinja", **values, page_of=partial(page_of, number=page))


@cache
def asset(path: str) -> tuple[bytes, str] | None:
    """A script or a style, and what it is."""
    found = ASSETS.get(path)
    return None if found is None else (found[0].read_bytes(), found[1])


def rendered(template: str, **values: Any) -> bytes:
    """A template of ours, or of the report, with these values."""
    return environment(FOLDER).get_template(template).render(**values).encode("utf-8", "replace")
