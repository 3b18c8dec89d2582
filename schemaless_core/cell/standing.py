"""`Standing`: whether a store is used as owner or as copier. And what a shard says of itself.

Every write says its kind and its epochs. `epoch` is which cluster owns the shard; `authority_epoch` is which
backend is the authority. The rules here are the whole fence; each engine states the same rules in its SQL.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from schemaless_core.errors import StaleEpoch


class ShardStatus(Enum):
    """Which kind of writer a shard takes."""

    RW = "RW"  #: Owners and copiers.
    COPY = "COPY"  #: Copiers only: Schemaless is a mirror.
    RO = "RO"  #: No writer: the shard is being handed over.
    MOVED = "MOVED"  #: No writer: another cluster owns the shard now.
    GOING = "GOING"  #: No writer: a mover takes it to another cluster, and copies its last cells.
    COMES = "COMES"  #: No writer yet: it has come from another cluster, and is about to be opened.
    #: No writer: its server needs a lease, and has none. What is stored is one of the others.
    UNLEASED = "UNLEASED"


#: A shard that says so opens in a moment, here or elsewhere.
PASSING = frozenset(each.value for each in (ShardStatus.RO, ShardStatus.GOING, ShardStatus.COMES, ShardStatus.UNLEASED))
#: The same, where the row itself says so. One of its epoch has all that was acknowledged at it.
FENCED = PASSING - {ShardStatus.UNLEASED.value}


class Kind(Enum):
    """In which role a caller writes."""

    OWNER = "owner"  #: A caller's own write.
    COPIER = "copier"  #: Mirror, relay, backfill, repair, replayer: carries what is true elsewhere.


class ShardState(NamedTuple):
    """The row of a shard: read beside every answer, checked by every write."""

    epoch: int
    authority_epoch: int
    status: str


class ShardHead(NamedTuple):
    """A shard's state and the last added id given in it."""

    state: ShardState
    head: int


@dataclass(frozen=True, slots=True)
class Standing:
    """The role a store is used in. `authority_epoch` None: whatever the store says (no facade above)."""

    kind: Kind = Kind.OWNER
    authority_epoch: int | None = None

    @property
    def is_fenced(self) -> bool:
        """Whether reads, too, count only from the open authority."""
        return self.kind is Kind.OWNER and self.authority_epoch is not None


_REASONS = {
    ShardStatus.RO.value: "it is RO and takes no writes: another server is about to lead it",
    ShardStatus.GOING.value: "it is GOING and takes no writes: it is being moved to another cluster",
    ShardStatus.COMES.value: "it COMES from another cluster and takes no writes yet",
}
_MOVED = "it has moved to another cluster"
_UNLEASED = "its server has no lease and takes no writes: it gets one in a moment, or another server is about to lead"


class Gate(NamedTuple):
    """What one write or read presents to one shard."""

    shard: int
    epoch: int
    kind: Kind
    authority_epoch: int
    is_fenced_read: bool = False

    @property
    def identity(self) -> tuple[int, int, int]:
        """What a store compares with its own row."""
        return self.shard, self.epoch, self.authority_epoch

    def check_write(self, state: ShardState) -> None:
        """Raise `StaleEpoch` unless the shard takes this write."""
        if state.status in FENCED:
            raise self._refusal(state, _REASONS[state.status])
        self._check_epoch(state)
        if state.status == ShardStatus.UNLEASED.value:
            raise self._refusal(state, _UNLEASED)
        if self.kind is Kind.OWNER:
            if state.status != ShardStatus.RW.value:
                is_mirror = state.status == ShardStatus.COPY.value
                reason = f"it is {state.status} and takes no owner's writes"
                raise self._refusal(state, reason, is_of_authority=is_mirror)
            if state.authority_epoch != self.authority_epoch:
                reason = f"authority epoch {self.authority_epoch} is not its {state.authority_epoch}"
                raise self._refusal(state, reason, is_of_authority=True)
        else:
            if state.status not in (ShardStatus.RW.value, ShardStatus.COPY.value):
                raise self._refusal(state, f"it is {state.status} and takes no writes")
            if state.authority_epoch > self.authority_epoch:
                reason = f"authority epoch {self.authority_epoch} is older than its {state.authority_epoch}"
                raise self._refusal(state, reason, is_of_authority=True)

    def check_read(self, state: ShardState) -> None:
        """Raise `StaleEpoch` unless the answer counts for this reader."""
        # One that is fenced has all that was acknowledged at its epoch. The next epoch is decided before it is opened.
        if state.status not in FENCED or state.epoch > self.epoch:
            self._check_epoch(state)
        if state.status == ShardStatus.MOVED.value:
            raise self._refusal(state, _MOVED)
        if self.is_fenced_read:
            self.check_write(state)

    def unconfirmed(self, state: ShardState) -> StaleEpoch:
        """Return why an answer does not count that a shard gave which takes no writes: another one may by now."""
        return self._refusal(state, f"it is {state.status}, and no source says whether it is still there")

    def check_beside(self, state: ShardState) -> None:
        """Raise `StaleEpoch` if what was written beside the cells may be lost: another server is about to take over."""
        self._check_epoch(state)
        if state.status in FENCED or state.status == ShardStatus.MOVED.value:
            raise self._refusal(state, _REASONS.get(state.status, _MOVED))
        if state.status == ShardStatus.UNLEASED.value:
            raise self._refusal(state, _UNLEASED)

    def _check_epoch(self, state: ShardState) -> None:
        if state.status == ShardStatus.MOVED.value and 0 < state.epoch < self.epoch:
            coming = state._replace(status=ShardStatus.COMES.value)  # decided, and not yet done: it opens in a moment
            raise self._refusal(coming, _REASONS[coming.status])
        if state.epoch != self.epoch:
            raise self._refusal(state, f"epoch {self.epoch} is not its {state.epoch}")

    def _refusal(self, state: ShardState, reason: str, *, is_of_authority: bool = False) -> StaleEpoch:
        return StaleEpoch(
            self.shard,
            state.status,
            reason,
            hint="Ask again; `tripstore status` shows which cluster owns the shard and which backend is the authority.",
            is_of_authority=is_of_authority,
        )
