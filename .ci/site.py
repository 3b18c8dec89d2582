"""What `make site` adds to MkDocs: the navigation is docs/index.md, root pages come along, drawings become SVG."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / ".ci"))

from drawings import drawn  # noqa: E402  # beside this file, which MkDocs loads by its path

#: Pages that stand where a hosting site looks for them, and their place in the site.
FROM_THE_ROOT = {"SECURITY.md": "security.md"}

_HEADING = re.compile(r"(#{2,3}) (.+)")
_LINK = re.compile(r"\[([^\]]+)\]\(([^)#\s]+\.md)\)")
_DRAWING = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)

#: What a search ranks a decision by: below the page that says how something is done.
_BOOST_OF_DECISIONS = 0.2

_FROM_A_CDN = re.compile(r"https://unpkg\.com/iframe-worker/shim")


def navigation(index: str) -> list[Any]:
    """The headings of the index and the pages that they list, in its order."""
    nav: list[Any] = ["index.md"]
    pages: list[Any] = nav
    section: list[Any] = nav
    for line in index.splitlines():
        if heading := _HEADING.match(line):
            outer = nav if heading[1] == "##" else section
            pages = []
            outer.append({heading[2]: pages})
            if heading[1] == "##":
                section = pages
        for title, path in _LINK.findall(line):
            pages.append({title[0].upper() + title[1:]: _in_site(path)})
    return nav


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    config.nav = navigation((Path(config.docs_dir) / "index.md").read_text(encoding="utf-8"))
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    beside = {f"assets/{each.name}": each for each in (ROOT / ".ci" / "site_files").iterdir()}
    for place, source in {**beside, **{place: ROOT / source for source, place in FROM_THE_ROOT.items()}}.items():
        files.append(File.generated(config, place, content=source.read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    if page.file.src_uri.startswith("decisions/"):
        page.meta["search"] = {"boost": _BOOST_OF_DECISIONS}
    if page.file.src_uri in FROM_THE_ROOT.values():
        markdown = markdown.replace("](docs/", "](")
    for source, place in FROM_THE_ROOT.items():
        markdown = markdown.replace(f"](../{source})", f"]({place})").replace(f"](../../{source})", f"](../{place})")
    return _DRAWING.sub(lambda found: drawn(found[1]), markdown)


def on_post_page(output: str, *, page: Page, **_: Any) -> str:
    """The theme's way to search without a server comes from a CDN; ours is here."""
    base = "../" * page.url.count("/") or "./"
    return _FROM_A_CDN.sub(f"{base}assets/worker.js", output)


def on_post_template(output_content: str, **_: Any) -> str:
    return _FROM_A_CDN.sub("./assets/worker.js", output_content)


def _in_site(path: str) -> str:
    return next((place for source, place in FROM_THE_ROOT.items() if path == f"../{source}"), path)
