"""Pages name commands, links, tests and files that exist, and can be found."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import click

from tests.documents import DOCS, NAMED_TEST, PAGES, ROOT, block, blocks, name, prose
from tests.markdown import anchors
from tripstore.cli.root import root

_LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
_SOURCE = re.compile(r"`((?:schemaless_core|backfill|validation|tripstore|tests|benchmarks|docs)/[\w/.-]+)`")


def shown_commands(page: Path) -> list[str]:
    """The lines of a page's shell blocks that call our command."""
    shells = [text.replace("\\\n", " ") for kind, text in blocks(page) if kind in ("sh", "bash")]
    return [line for text in shells for line in text.splitlines() if line.strip().startswith("tripstore ")]


def unknown_options(line: str) -> str:
    """What is wrong with a command that is shown; empty: nothing."""
    _program, *arguments = shlex.split(line, comments=True)
    command: click.Command = root
    while isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
        word = arguments.pop(0)
        found = command.get_command(click.Context(command), word)
        if found is None:
            return f"there is no {word}"
        command = found
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    asked = {argument.partition("=")[0] for argument in arguments if re.match(r"--?[a-z]", argument)}
    return ", ".join(sorted(asked - known - {"--help", "--version"}))


def test_commands_that_pages_show_have_these_options() -> None:
    faults = {
        (name(page), line, fault) for page in PAGES for line in shown_commands(page) if (fault := unknown_options(line))
    }

    assert faults == set()


def dead_links(page: Path) -> Iterator[str]:
    for link in _LINK.findall(prose(page)):
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        if "://" not in link and not (target.is_file() and (not anchor or anchor in anchors(prose(target)))):
            yield f"{name(page)} links to {link}"


def test_links_lead_somewhere() -> None:
    assert [link for page in PAGES for link in dead_links(page)] == []


def missing(page: Path) -> Iterator[str]:
    """What a page names and is not there."""
    text = page.read_text()
    for file, test in NAMED_TEST.findall(text):
        source = ROOT / file
        if not source.is_file() or f"def {test}(" not in source.read_text():
            yield f"{name(page)} names {file}::{test}"
    yield from (f"{name(page)} names {path}" for path in _SOURCE.findall(text) if not (ROOT / path).exists())


def test_tests_and_files_that_pages_name_exist() -> None:
    assert [each for page in PAGES for each in missing(page)] == []


def test_control_what_is_not_there_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("[gone](gone.md) `tests/gone.py::test_gone` `docs/gone.md`\n")
    with patch("tests.unit.docs.test_pages.name", return_value="page"):
        assert list(dead_links(page)) == ["page links to gone.md"]
        assert list(missing(page)) == ["page names tests/gone.py::test_gone", "page names docs/gone.md"]
    assert unknown_options("tripstore status --gone") == "--gone"
    assert unknown_options("tripstore gone") == "there is no gone"


def test_every_page_can_be_found_from_the_index_or_is_linked_to() -> None:
    linked = {
        (source.parent / link.partition("#")[0]).resolve()
        for source in (ROOT / "README.md", DOCS / "index.md")
        for link in _LINK.findall(prose(source))
        if "://" not in link
    }

    assert set(PAGES) - linked == {ROOT / "README.md"}


def test_the_first_commands_of_the_readme_are_in_the_makefile() -> None:
    first = [line.split("#")[0].strip() for line in block(ROOT / "README.md", "sh").splitlines()]
    makefile = (ROOT / "Makefile").read_text()

    assert first == ["make demo", "make test"]
    for target in re.findall(r"`make (\w+)", (ROOT / "README.md").read_text()):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_the_readme_fits_on_two_screens() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_license_and_the_ways_to_contribute_and_to_report_a_hole_are_there_and_linked() -> None:
    readme = (ROOT / "README.md").read_text()

    assert (ROOT / "LICENSE").read_text().lstrip().startswith("Apache License")
    assert (ROOT / "SECURITY.md").read_text().strip()
    assert (ROOT / "CONTRIBUTING.md").read_text().strip()
    assert "(LICENSE)" in readme
    assert "(CONTRIBUTING.md)" in readme
