"""How large a test is: `make soak` runs the full figures, CI the same tests at about a twentieth."""

from __future__ import annotations

import os

SCALE = float(os.environ.get("TRIPSTORE_SCALE", "0.05"))


def scaled(full: int, *, least: int = 1) -> int:
    """The full figure of an issue at the scale of this run."""
    return max(least, round(full * SCALE))
