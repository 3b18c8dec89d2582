"""The browser in which the report is tested: Debian's Chromium, without a window."""

import shutil

from tripstore.local.errors import LocalServerError


def find_chromium() -> str | None:
    """Return the program of the installed Chromium, or None."""
    return shutil.which("chromium")


def get_chromium() -> str:
    """Return it, or raise and say how to install it."""
    found = find_chromium()
    if found is None:
        raise LocalServerError("Chromium is not installed.", "Run `python -m tripstore.local.install` as root.")
    return found
