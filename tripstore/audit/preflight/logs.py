"""Statements in a log of Postgres: stderr, csvlog or jsonlog, by `log_statement` or `log_min_duration_statement`.

The words are those of `lc_messages = C` or English. Of the extended protocol only the execution counts: parse and
bind are told beside it.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator

import msgspec

from tripstore.audit.preflight.asked import Asked

_ENTRY = re.compile(r"^(?!\t).*?\b(?P<level>[A-Z]+\d?):\s\s(?P<message>.*)$")
_SAID = re.compile(
    r"(?:duration: [\d.]+ ms\s+)?(?:statement|execute (?P<name>[^:]*)):\s(?P<text>.*)",
    re.DOTALL,
)
_FAST_PATH = "fastpath function call:"
#: Where csvlog has them.
_LEVEL, _MESSAGE = 11, 13


def stderr_statements(text: str, name: str) -> Iterator[Asked]:
    """An entry begins with the prefix; its other lines begin with a tab."""
    number, message, level = 0, "", ""
    for line_number, line in enumerate(text.split("\n"), 1):
        if line.startswith("\t") and number:
            message += "\n" + line[1:]
            continue
        yield from _entry(level, message, f"{name}:{number}")
        found = _ENTRY.match(line)
        number = line_number if found else 0
        level, message = (found["level"], found["message"]) if found else ("", "")
    yield from _entry(level, message, f"{name}:{number}")


def is_csvlog(text: str) -> bool:
    """Whether its first entry has a level where csvlog has it."""
    first = next(csv.reader(io.StringIO(text, newline="")), [])
    return len(first) > _MESSAGE and first[_LEVEL].isupper()


def csv_statements(text: str, name: str) -> Iterator[Asked]:
    reader = csv.reader(io.StringIO(text, newline=""))
    begin = 1
    for row in reader:
        if len(row) > _MESSAGE:
            yield from _entry(row[_LEVEL], row[_MESSAGE], f"{name}:{begin}")
        begin = reader.line_num + 1


def json_statements(text: str, name: str) -> Iterator[Asked]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        where = f"{name}:{number}"
        try:
            entry = msgspec.json.decode(line, type=dict[str, object])
        except msgspec.DecodeError as error:
            yield Asked(line[:200], where, unreadable=f"the line is no JSON: {error}")
            continue
        yield from _entry(str(entry.get("error_severity", "")), str(entry.get("message", "")), where)


def _entry(level: str, message: str, where: str) -> Iterator[Asked]:
    if level != "LOG":
        return
    if message.startswith(_FAST_PATH):
        yield Asked(message, where, unreadable="the log does not say which function the fast path called")
        return
    found = _SAID.fullmatch(message)
    if found is not None:
        yield Asked(found["text"].strip().rstrip(";"), where)
