"""Numbers, times and durations as people read them on the page."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from decimal import Decimal

from markupsafe import Markup, escape

#: Between a number and its unit no line ends.
_SPACE = "\N{NO-BREAK SPACE}"
_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


#: Behind these a name may be broken.
_JOINTS = re.compile(r"(?<=[_.:/@-])(?=.)")


def count(number: int | float) -> str:
    return f"{number:,.0f}"


def percent(share: float) -> str:
    """Of a share of 1, with as many digits as say something."""
    found = 100 * share
    if found >= 99.95 or found == 0:
        return f"{found:.0f}{_SPACE}%"
    digits = f"{found:.3g}" if found >= 0.001 else f"{Decimal(f'{found:.1g}'):f}"
    return f"{digits}{_SPACE}%"


def duration(seconds: float | None) -> str:
    """Three digits at most, in the unit that fits."""
    if seconds is None:
        return "–"
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{_three_digits(seconds / size)}{_SPACE}{unit}"
    return f"0{_SPACE}s"


def moment(at: datetime) -> str:
    """To the minute; the page says once that all times are UTC."""
    return f"{at.day} {at:%b %Y, %H:%M}"


def short_moment(at: datetime) -> str:
    return f"{at.day} {at:%b, %H:%M}"


def day(at: datetime) -> str:
    return f"{at.day} {at:%b}"


def elapsed(begun_at: datetime, ended_at: datetime) -> str:
    return duration(max((ended_at - begun_at) / timedelta(seconds=1), 0.0))


def plural(number: int, one: str, many: str = "") -> str:
    """`3 gates`, `1 gate`."""
    return f"{count(number)}{_SPACE}{one if number == 1 else many or one + 's'}"


def prose(text: str) -> Markup:
    """A sentence in which `backticks` are code; everything else of it is text, whatever it looks like."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return escape(text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 2 else escape(part) for number, part in enumerate(parts)
    )


def breakable(name: str) -> Markup:
    """A name that may be broken between its parts, and nowhere else."""
    return Markup("<wbr>").join(_JOINTS.split(name))


def _three_digits(number: float) -> str:
    if number >= 99.95:
        return f"{number:,.0f}"
    digits = f"{number:.1f}" if number >= 9.995 else f"{number:.2f}"
    return digits.rstrip("0").rstrip(".")
