"""`Frame`: what is known of the statement, or of the part between brackets, that a reader is in. Values only."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Source:
    """A table in a list of tables, and the name that it has there."""

    use: int
    names: frozenset[str]


@dataclass
class Frame:
    """What stands between two brackets, or between two semicolons."""

    opener: str = ""  #: the word before the bracket
    opening: int = -1  #: where the bracket is
    verb: str = ""
    lists_tables: bool = False
    in_columns: bool = False
    is_existence: bool = False
    returns: bool = False
    stars: set[str] = field(default_factory=set)
    sources: list[Source] = field(default_factory=list)
    target: Source | None = None
