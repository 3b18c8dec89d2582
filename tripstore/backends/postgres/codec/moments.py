"""Times and dates as text: RFC 3339 in UTC with microseconds in bodies, ISO with a blank in Postgres.

Both know years beyond 9999 and before 1, and infinity. In bodies these are strings that no RFC 3339 reader takes:
"294276-12-31T23:59:59.999999Z", "0044-03-15T12:00:00.000000Z BC", "-infinity". Nothing is cut off.
"""

from __future__ import annotations

import re
from datetime import date

from schemaless_core import Json
from tripstore.backends.postgres.codec.refused import Refused, other_type

INFINITE = ("infinity", "-infinity")
#: The last years that a timestamp and a date of Postgres know, and the first.
TIMESTAMP_YEAR_MAX = 294276
DATE_YEAR_MAX = 5874897
YEAR_BC_MAX = 4714

_DATE = r"(\d{4}|[1-9]\d{4,6})-(\d\d)-(\d\d)"
_RENDERED = re.compile(rf"({_DATE}) (\d\d:\d\d:\d\d)(?:\.(\d{{1,6}}))?(?:\+00)?( BC)?", re.ASCII).fullmatch
_MOMENT = re.compile(rf"{_DATE}T([01]\d|2[0-3]):[0-5]\d:[0-5]\d\.\d{{6}}Z( BC)?", re.ASCII).fullmatch
_DAY = re.compile(rf"{_DATE}( BC)?", re.ASCII).fullmatch


class Datetime:
    """A timestamp with time zone; one without is taken as UTC, as it stands."""

    def read(self, text: str) -> Json:
        moment = text[:-3] if text.endswith("+00") else text
        # The years 1 to 9999, told fast: every row passes here.
        if moment[4:5] == "-" and moment[10:11] == " ":
            if len(moment) == 19:
                return f"{moment[:10]}T{moment[11:]}.000000Z"
            if moment[19] == "." and moment[20:].isdigit():
                return f"{moment[:10]}T{moment[11:].ljust(15, '0')}Z"
        if text in INFINITE:
            return text
        parts = _RENDERED(text)
        if parts is None:
            raise Refused("it is no time in UTC")
        return f"{parts[1]}T{parts[5]}.{parts[6] or '':0<6}Z{parts[7] or ''}"

    def write(self, value: Json) -> str:
        if type(value) is not str:
            raise other_type(value, "a time as a string")
        if value in INFINITE:
            return value
        parts = _MOMENT(value)
        if parts is None:
            raise Refused(
                'it is not written as times are here: in UTC, with microseconds, "2014-08-01T12:00:00.000000Z"'
            )
        _check_day(parts[1], parts[2], parts[3], is_bc=parts[5] is not None, year_max=TIMESTAMP_YEAR_MAX)
        return value


class Date:
    def read(self, text: str) -> Json:
        if _DAY(text) is None and text not in INFINITE:
            raise Refused("it is no date")
        return text

    def write(self, value: Json) -> str:
        if type(value) is not str:
            raise other_type(value, "a date as a string")
        if value in INFINITE:
            return value
        parts = _DAY(value)
        if parts is None:
            raise Refused('it is not written as dates are here: "2014-08-01"')
        _check_day(parts[1], parts[2], parts[3], is_bc=parts[4] is not None, year_max=DATE_YEAR_MAX)
        return value


def _check_day(year_text: str, month: str, day: str, *, is_bc: bool, year_max: int) -> None:
    """Refuse a day that no calendar has: Postgres would refuse it too, but later."""
    year = int(year_text)
    if not 1 <= year <= (YEAR_BC_MAX if is_bc else year_max):
        raise Refused("Postgres knows no such year")
    # The calendar repeats every 400 years; 1 BC is the year 0.
    same_calendar = (1 - year if is_bc else year) % 400 + 2000
    try:
        date(same_calendar, int(month), int(day))
    except ValueError:
        raise Refused("there is no such day") from None
