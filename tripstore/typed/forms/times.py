"""Forms of times and dates. A `datetime` is aware and in UTC; what Python cannot hold exactly is a `TimeText`."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, timezone

from schemaless_core.cell.canonical import Json
from tripstore.typed.forms.form import ValueForm
from tripstore.typed.kept import TimeText
from tripstore.typed.unfit import Unfit, other_kind

_MOMENT = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,6})0*)?)? ?(Z|([+-])(\d\d)(?::?([0-5]\d))?)",
    re.ASCII | re.IGNORECASE,
).fullmatch
_WRITTEN_LENGTH = len("2014-08-01T12:00:00.000000Z")
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII).fullmatch


def _read_moment(value: Json) -> datetime | TimeText:
    if type(value) is not str:
        raise other_kind(value, "a time as text")
    try:
        if len(value) == _WRITTEN_LENGTH and value[10] == "T" and value[-1] == "Z":  # as tables' bodies have it
            return datetime.fromisoformat(value)
        parts = _MOMENT(value)
        return TimeText(value) if parts is None else _moment(parts)
    except (ValueError, OverflowError):  # a leap second, a day that no calendar has, a year beyond 1 to 9999 in UTC
        return TimeText(value)


def _moment(parts: re.Match[str]) -> datetime:
    year, month, day, hour, minute, second = (int(part or 0) for part in parts.groups()[:6])
    microsecond = int((parts[7] or "").ljust(6, "0"))
    offset = timedelta(hours=int(parts[10] or 0), minutes=int(parts[11] or 0))
    zone = timezone(-offset if parts[9] == "-" else offset)
    at = datetime(year, month, day, hour, minute, second, microsecond, zone)
    return at.astimezone(UTC)


def _write_moment(value: object) -> Json:
    if isinstance(value, TimeText):
        return str.__str__(value)
    if not isinstance(value, datetime):
        raise other_kind(value, "a datetime")
    if value.utcoffset() is None:
        raise Unfit("it has no time zone", "Pass an aware datetime, like datetime.now(UTC).")
    try:
        at = value.astimezone(UTC)
    except OverflowError:
        raise Unfit("its year in UTC is not 1 to 9999", "Pass a TimeText.") from None
    return at.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def _read_day(value: Json) -> date | TimeText:
    if type(value) is not str:
        raise other_kind(value, "a date as text")
    try:
        return TimeText(value) if _DAY(value) is None else date.fromisoformat(value)
    except ValueError:
        return TimeText(value)


def _write_day(value: object) -> Json:
    if isinstance(value, TimeText):
        return str.__str__(value)
    if not isinstance(value, date) or isinstance(value, datetime):
        raise other_kind(value, "a date")
    return value.isoformat()


DATETIMES = ValueForm(_read_moment, _write_moment)
DATES = ValueForm(_read_day, _write_day)
