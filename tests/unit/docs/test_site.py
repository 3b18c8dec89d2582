"""The site of the documentation: its navigation has every page once, and its drawings show all that they say."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.documents import DOCS, PAGES, ROOT, blocks

DRAWINGS = [(page, text) for page in PAGES for kind, text in blocks(page) if kind == "mermaid"]
FORK = """\
sequenceDiagram
accTitle: What a fork is
participant A as the old primary
participant B
A->>B: cells
B-->>A: EXISTS
Note over A,B: here the log forks
"""


def of_ci(name: str) -> ModuleType:
    """A file beside CI's, which is in no package: Python has a module `site` of its own."""
    spec = importlib.util.spec_from_file_location(f"ci_{name}", ROOT / ".ci" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    sys.modules[f"ci_{name}"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


drawings = of_ci("drawings")
site = of_ci("site")


def places(nav: list[Any]) -> Iterator[str]:
    for each in nav:
        if isinstance(each, str):
            yield each
        else:
            for inside in each.values():
                yield from [inside] if isinstance(inside, str) else places(inside)


def test_the_navigation_is_the_index_and_has_every_page_once() -> None:
    listed = list(places(site.navigation((DOCS / "index.md").read_text())))

    assert sorted(listed) == sorted([*(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")), "security.md"])
    assert list(places(site.navigation("## How to\n### Run\n- [it](a.md): like [that](b.md)\n"))) == [
        "index.md",
        "a.md",
        "b.md",
    ]


def test_layers_and_the_journeys_of_a_write_are_drawn() -> None:
    drawn = {page.stem for page, _ in DRAWINGS}

    assert drawn >= {
        "architecture",
        "journey-of-a-put",
        "journey-of-a-mirrored-write",
        "journey-of-a-switch",
        "promotion",
    }


@pytest.mark.parametrize("drawing", DRAWINGS, ids=lambda drawing: drawing[0].stem)
def test_every_drawing_is_drawn_with_all_its_words(drawing: tuple[Any, str]) -> None:
    figure = ElementTree.fromstring(drawings.drawn(drawing[1]))
    shown = " ".join(text.strip() for text in figure.itertext())
    said = re.findall(r'(?:: |as |\[")([^"\n]+)', drawing[1])

    words = [word for text in said for word in text.replace("<br/>", " ").split()]
    assert [word for word in words if word not in shown] == []
    svg = figure.find("svg")
    assert svg is not None
    width = float(svg.attrib["viewBox"].split()[2])
    for rect in svg.iter("rect"):
        assert 0 <= float(rect.attrib["x"]) <= float(rect.attrib["x"]) + float(rect.attrib["width"]) <= width + 1


@pytest.mark.parametrize(
    ("spoilt", "why"),
    [
        (FORK.replace("A->>B", "A--xB"), "A--xB: cells"),
        (FORK.replace("accTitle: What a fork is\n", ""), "accTitle"),
        (FORK.replace("participant B\n", ""), "Not a participant"),
        (FORK.replace("sequenceDiagram", "pie"), "pie"),
        ("flowchart TB\naccTitle: One\na --> b", "has no text yet"),
    ],
)
def test_control_a_line_that_is_not_drawn_is_an_error(spoilt: str, why: str) -> None:
    assert "EXISTS" in drawings.drawn(FORK)
    with pytest.raises(drawings.NotDrawn, match=why):
        drawings.drawn(spoilt)


def test_no_page_of_the_site_asks_another_host() -> None:
    """What the theme would fetch from a CDN stands beside the pages."""
    page = site.on_post_page('<script src="https://unpkg.com/iframe-worker/shim">', page=_Page("howto/diff.html"))

    assert page == '<script src="../assets/worker.js">'
    assert (ROOT / ".ci" / "site_files" / "worker.js").exists()


class _Page:
    def __init__(self, url: str) -> None:
        self.url = url
