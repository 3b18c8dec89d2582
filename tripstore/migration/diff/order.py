"""`Order`: what a diff is to compare, as it stands in its job."""

from __future__ import annotations

import msgspec

from schemaless_core.cell.canonical import Json

SAMPLE = 1_000
DECODED = 200


class Order(msgspec.Struct, frozen=True, omit_defaults=True):
    """Two stores, and what of them."""

    source: str = "postgres"
    target: str = "schemaless"
    columns: list[str] | None = None
    #: First and behind the last; None: all.
    shards: list[int] | None = None
    #: The share of the rows whose older versions are compared.
    older: float = 0.0
    #: Whether indexes are compared.
    indexes: bool = True
    #: Rows of each column that go through the independent decoder.
    decoded: int = DECODED
    #: Findings of each kind that a part keeps.
    sample: int = SAMPLE
    #: Where every difference is written, on the machine that compares.
    keys: str | None = None
    processes: int = 1
    #: What it spares, as `throttle` in the configuration; None: as the host that compares has it.
    blocks_max: int | None = None
    probe: str | None = None
    probe_seconds_max: float | None = None
    probe_deadline_seconds: float | None = None

    @property
    def is_partial(self) -> bool:
        """Whether it says nothing of the whole: no gate goes by it."""
        return self.columns is not None or self.shards is not None

    @property
    def scope(self) -> dict[str, Json]:
        """How closely it looks."""
        return {"older": self.older, "decoded": self.decoded, "indexes": int(self.indexes)}
