"""Debian's Chromium, as the tests of pages drive it, and what they ask of any page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

from tests.absence import absent
from tripstore.local.browser import get_chromium
from tripstore.local.errors import LocalServerError

#: Of an element that stands out to the right, with whatever would tell which it is.
WIDER = """() => [...document.querySelectorAll('body *')]
    .filter((each) => each.getBoundingClientRect().right > document.documentElement.clientWidth + 1
        && !each.closest('svg, pre, .skip, .hidden-text, .scroll'))
    .map((each) => `${each.tagName} ${each.className}`)"""


@contextmanager
def chromium() -> Iterator[Browser]:
    """Missing, it fails in CI, and skips with its reason elsewhere."""
    try:
        program = get_chromium()
    except LocalServerError as error:
        absent(str(error))
    with sync_playwright() as playwright:
        # As root there is no sandbox; the page is ours.
        launched = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield launched
        launched.close()
