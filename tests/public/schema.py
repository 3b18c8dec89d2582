"""`PublicSchema`: a company whose tables anybody can look up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from schemaless_core import Json


class Sent(NamedTuple):
    """What a service sends; of COPY … FROM stdin, with its data."""

    statement: str
    copied: str | None = None


@dataclass(frozen=True)
class PublicSchema:
    """Tables, rows in any number, and what services do to them."""

    name: str
    ddl: str
    rows: str  #: With `{rows}`, how many the parent has.
    tables: tuple[str, ...]  #: That are to be mapped.
    parent: str
    traffic: tuple[Sent, ...]
    amended: Mapping[str, Json]  #: What a caller of the facade changes of a parent's body.
    #: Bodies of new children, by table, in the order in which they are put.
    children: Mapping[str, dict[str, Json]]
    changed: Mapping[str, dict[str, Json]] = field(default_factory=dict)
    #: The first number of new children, where it is a key of another table's.
    numbers: Mapping[str, int] = field(default_factory=dict)
    #: Tables whose own key is the number: there the store finds one.
    appended: tuple[str, ...] = ()
