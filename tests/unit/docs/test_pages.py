"""Pages name commands, links, tests and files that exist, and can be found."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click

from tests.documents import DOCS, NAMED_TEST, ROOT, block, blocks, every_page, name, prose
from tests.markdown import anchors
from tripstore.cli.root import root

_LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
_SOURCE = re.compile(r"`((?:schemaless_core|backfill|validation|tripstore|tests|benchmarks|docs)/[\w/.-]+)`")


def shown_commands(page: Path) -> list[str]:
    """The lines of a page's shell blocks that call our command."""
    shells = [text.replace("\\\n", " ") for kind, text in blocks(page) if kind in ("sh", "bash")]
    return [line for text in shells for line in text.splitlines() if line.strip().startswith("tripstore ")]


@every_page
def test_commands_that_a_page_shows_have_these_options(page: Path) -> None:
    for line in shown_commands(page):
        _program, *arguments = shlex.split(line, comments=True)
        command: click.Command = root
        while isinstance(command, click.Group) and arguments and arguments[0] != "--help":
            word = arguments.pop(0)
            found = command.get_command(click.Context(command), word)
            assert found is not None, f"{name(page)} shows {line}"
            command = found
        known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        asked = {argument.partition("=")[0] for argument in arguments if re.match(r"--?[a-z]", argument)}
        assert asked <= known | {"--help", "--version"}, f"{name(page)} shows {line}"


@every_page
def test_links_lead_somewhere(page: Path) -> None:
    for link in _LINK.findall(prose(page)):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.is_file(), f"{name(page)} links to {link}"
        assert not anchor or anchor in anchors(prose(target)), f"{name(page)} links to {link}"


@every_page
def test_tests_and_files_that_a_page_names_exist(page: Path) -> None:
    text = page.read_text()
    for file, test in NAMED_TEST.findall(text):
        source = ROOT / file
        assert source.is_file(), f"{name(page)} names {file}"
        assert f"def {test}(" in source.read_text(), f"{name(page)} names {file}::{test}"
    for path in _SOURCE.findall(text):
        assert (ROOT / path).exists(), f"{name(page)} names {path}"


@every_page
def test_every_page_can_be_found_from_the_index_or_is_linked_to(page: Path) -> None:
    linked = {
        (source.parent / link.partition("#")[0]).resolve()
        for source in (ROOT / "README.md", DOCS / "index.md")
        for link in _LINK.findall(prose(source))
        if "://" not in link
    }

    assert page in linked or page == ROOT / "README.md"


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
