"""Names of databases and tables: built here only, from checked parts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Names:
    """The databases of one datastore on one server."""

    datastore: str  #: Checked by the configuration: lower-case letters, digits and _.

    @property
    def meta(self) -> str:
        return f"`{self.datastore}_meta`"

    @property
    def shard_state(self) -> str:
        return f"{self.meta}.shard_state"

    @property
    def shard_epoch(self) -> str:
        return f"{self.meta}.shard_epoch"

    def database(self, shard: int) -> str:
        return f"`{self.datastore}_{shard:04d}`"

    def cell(self, shard: int) -> str:
        return f"{self.database(shard)}.cell"

    def sql(self, template: str, shard: int) -> str:
        """A statement with the tables of a shard filled in; its values stay to be bound."""
        return _filled(self, template, shard)


@lru_cache(maxsize=65536)
def _filled(names: Names, template: str, shard: int) -> str:
    return template.format(cell=names.cell(shard), state=names.shard_state, history=names.shard_epoch)
