"""`ColumnKind`: columns whose latest cells are found alike. A walk over a shard looks at one kind after the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class ColumnKind(NamedTuple):
    """Some columns, or all but some."""

    names: tuple[bytes, ...]
    #: Whether it is every column but these.
    is_rest: bool
    #: The bits of a ref key that are the version of a child, 0 of facts; None: the column is one row.
    bits: int | None = None

    def condition(self, place: str) -> str:
        """What stands behind a condition in SQL; `place` is a parameter. The names are its parameters."""
        places = ", ".join([place] * len(self.names))
        if self.is_rest:
            return f"AND column_name NOT IN ({places})" if places else ""
        return f"AND column_name IN ({places or 'NULL'})"

    @property
    def family(self) -> str:
        """What else tells the rows of a column apart, behind a GROUP BY."""
        return f", ref_key >> {self.bits}" if self.bits else ""

    def child(self, ref_key: int) -> int:
        return 0 if self.bits is None else ref_key >> self.bits


def kinds_of(columns: Sequence[bytes] | None, children: Mapping[bytes, int]) -> list[ColumnKind]:
    """All columns, or these, by kind."""
    of_bits: defaultdict[int, list[bytes]] = defaultdict(list)
    for name, bits in children.items():
        if columns is None or name in columns:
            of_bits[bits].append(name)
    if columns is None:
        plain = ColumnKind(tuple(children), is_rest=True)
    else:
        plain = ColumnKind(tuple(name for name in columns if name not in children), is_rest=False)
    kinds = [ColumnKind(tuple(names), is_rest=False, bits=bits) for bits, names in sorted(of_bits.items())]
    return [plain, *kinds] if plain.is_rest or plain.names or not kinds else kinds
