"""How large a test is: `make soak` runs the full figures, CI the same tests at about a twentieth."""

from __future__ import annotations

import os

SCALE = float(os.environ.get("TRIPSTORE_SCALE", "0.05"))


def scaled(full: int, *, least: int = 1, short: int | None = None) -> int:
    """The full figure of an issue at the scale of this run; `short` where a twentieth would take CI too long."""
    if short is not None and SCALE < 1:
        return short
    return max(least, round(full * SCALE))
