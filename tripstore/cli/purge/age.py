"""`Age`: how long ago, as an operator writes it."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import click

_UNITS = {"d": "days", "h": "hours", "m": "minutes"}
_AGE = re.compile(r"(\d{1,6})([dhm])")


class Age(click.ParamType[timedelta]):
    """90d, 36h or 15m."""

    name = "age"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        found = _AGE.fullmatch(value)
        if found is None:
            self.fail(f"{value!r} is no age: write 90d, 36h or 15m.", param, ctx)
        return timedelta(**{_UNITS[found[2]]: int(found[1])})
