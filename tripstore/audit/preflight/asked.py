"""`Asked`: a statement that the company sends, where it was found, and how often. And a text of SQL, cut into such."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tripstore.audit.places import Lines
from tripstore.backends.postgres.tokens import Type, tokens


@dataclass(frozen=True, slots=True)
class Asked:
    """One statement, or one kind of statement."""

    text: str
    where: str
    calls: int = 1
    rows: int | None = None  #: Of all calls; None: this source does not count them.
    #: Why it cannot be read, where its source knows that already.
    unreadable: str | None = None


#: What follows COPY … FROM stdin in a script is data.
_DATA = re.compile(r"(?ims)(^[ \t]*COPY\b[^;]*?\bFROM\s+STDIN\b[^;]*;)([^\n]*\n.*?^\\\.[ \t\r]*$)")
_META = re.compile(r"(?m)^[ \t]*\\(?!\.)[^\n]*$")


def statements(text: str, name: str) -> Iterator[Asked]:
    """The statements of a script as psql reads it: cut at semicolons, data of COPY left out."""
    text = _DATA.sub(lambda found: found[1] + re.sub(r"[^\n]", " ", found[2]), text)
    lines = Lines(text)
    for meta in _META.finditer(text):
        where = f"{name}:{lines.at(meta.start())[0]}"
        yield Asked(meta[0].strip(), where, unreadable="it is a command of psql, not of Postgres")
    text = _META.sub(lambda found: " " * len(found[0]), text)
    begin: int | None = None
    end = 0
    for token in tokens(text):
        if token.type is Type.COMMENT:
            continue
        if token.value == ";" and token.type is Type.OTHER:
            if begin is not None:
                yield Asked(text[begin : token.offset].strip(), f"{name}:{lines.at(begin)[0]}")
            begin = None
            continue
        begin = token.offset if begin is None else begin
        end = token.offset + len(token.raw)
    if begin is not None:
        yield Asked(text[begin:end].strip(), f"{name}:{lines.at(begin)[0]}")
