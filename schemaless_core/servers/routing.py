"""`Router`: brings a call to the shard's cluster with the right gate, and once more when a store says "not here".

Every write and every read passes here. A write presents its gate to the store; the answer of a read carries the
store's own state, which must admit the reader, or the answer is dropped.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from schemaless_core import metrics
from schemaless_core.cell.standing import FENCED, PASSING, Gate, ShardState, Standing
from schemaless_core.cell.stored import NewCell
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import Batch, BatchAnswer, Node
from schemaless_core.engine.primacy import Lead
from schemaless_core.errors import (
    NodeUnavailable,
    SchemalessError,
    SchemaMissing,
    StaleEpoch,
    Unavailable,
    first_error,
)
from schemaless_core.habits import ReadFrom
from schemaless_core.servers.clusters import Cluster
from schemaless_core.servers.fanout import FanOut
from schemaless_core.servers.guarded import GuardedNode
from schemaless_core.servers.places import Place, Places

T = TypeVar("T")
W = TypeVar("W")


#: The store that was asked does not hold the shard, or not for this caller.
Refusal = StaleEpoch | SchemaMissing


class _Answer(Protocol):
    @property
    def state(self) -> ShardState: ...


A = TypeVar("A", bound=_Answer)


class _Way(NamedTuple):
    """Where a call goes, and what it presents there."""

    place: Place
    gate: Gate
    cluster: Cluster


PAUSE_SECONDS = 0.005
BRIEF_SECONDS = 0.05
#: With less left a call is not begun again: "refused" says more than "not answered in time".
LEAST_SECONDS = 0.05


class Router:
    """Routes calls to nodes; knows nothing of cells."""

    def __init__(
        self,
        clusters: Mapping[str, Cluster],
        places: Places,
        fanout: FanOut,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._clusters = clusters
        self._places = places
        self._fanout = fanout
        self._sleep = sleep

    def write(
        self, shard: int, verb: Callable[[Node, Gate], T], standing: Standing, deadline: Deadline
    ) -> tuple[T, int]:
        """Run a write on the shard's primary; return its answer and the epoch it was made under."""
        while True:
            way = self._way(shard, standing, deadline)
            try:
                return way.cluster.write(verb, way.gate), way.gate.epoch
            except (StaleEpoch, SchemaMissing, NodeUnavailable) as error:
                refusal = _explained(error, way, way.gate.check_write, deadline)
                if isinstance(refusal, NodeUnavailable) or _is_final(refusal, standing):
                    if refusal is error:
                        raise
                    raise refusal from error
                self._learn_or_raise(shard, refusal, way.place, deadline)

    def read(
        self, shard: int, verb: Callable[[Node], A], standing: Standing, read_from: ReadFrom, deadline: Deadline
    ) -> A:
        """Run a read and return its answer once the shard admits the reader."""
        while True:
            way = self._way(shard, standing, deadline, is_read=True)
            try:
                answer = way.cluster.read(verb, read_from, deadline, is_fenced=way.gate.is_fenced_read)
                way.gate.check_read(answer.state)
                if read_from != "replica":  # which may be old
                    for refusal in self._unconfirmed({shard: answer.state}, {shard: way}, deadline).values():
                        raise refusal
                return answer
            except (StaleEpoch, SchemaMissing) as refusal:
                if _is_final(refusal, standing):
                    raise
                if read_from == "replica":
                    read_from = "primary"  # the replica may only be behind
                else:
                    self._learn_or_raise(shard, refusal, way.place, deadline)

    def read_many(
        self,
        wanted: Mapping[int, W],
        verb: Callable[[Node, Mapping[int, W]], dict[int, A]],
        standing: Standing,
        read_from: ReadFrom,
        deadline: Deadline,
    ) -> dict[int, A]:
        """Run a read over many shards and return all answers, or raise why there is one less."""
        answers = self.read_each(wanted, verb, standing, read_from, deadline)
        if (error := first_error(answers.values())) is not None:
            raise error
        return {shard: answer for shard, answer in answers.items() if not isinstance(answer, SchemalessError)}

    def read_each(
        self,
        wanted: Mapping[int, W],
        verb: Callable[[Node, Mapping[int, W]], dict[int, A]],
        standing: Standing,
        read_from: ReadFrom,
        deadline: Deadline,
    ) -> dict[int, A | SchemalessError]:
        """Run a read over many shards, cluster by cluster in parallel; repeat only what was refused.

        One answer or error per shard: a worker that serves many shards must not stop with the one server that is down.
        """
        return self._each(wanted, verb, standing, read_from, deadline)

    def _each(
        self,
        wanted: Mapping[int, W],
        verb: Callable[[Node, Mapping[int, W]], dict[int, A]],
        standing: Standing,
        read_from: ReadFrom,
        deadline: Deadline,
        *,
        is_write: bool = False,
    ) -> dict[int, A | SchemalessError]:
        answers: dict[int, A | SchemalessError] = {}
        pending = dict(wanted)
        while pending:
            refused: dict[int, Refusal] = {}
            states: dict[int, ShardState] = {}
            ways, unknown = self._ways(pending, standing, deadline, is_read=True)
            answers.update(unknown)
            for part, outcome in self._read_parts(ways, pending, verb, standing, read_from, deadline, is_write):
                if isinstance(outcome, NodeUnavailable) and is_write:
                    way = ways[next(iter(part))]
                    outcome = _explained(outcome, way, way.gate.check_beside, deadline)
                if isinstance(outcome, StaleEpoch | SchemaMissing):
                    refused.update(dict.fromkeys(part, outcome))
                    continue
                if isinstance(outcome, SchemalessError):
                    answers.update(dict.fromkeys(part, outcome))
                    continue
                for shard in part:
                    try:
                        ways[shard].gate.check_read(outcome[shard].state)
                        if is_write:
                            ways[shard].gate.check_beside(outcome[shard].state)
                        answers[shard], states[shard] = outcome[shard], outcome[shard].state
                    except StaleEpoch as refusal:
                        refused[shard] = refusal
            if not is_write and read_from != "replica":  # which may be old
                refused.update(self._unconfirmed(states, ways, deadline))
                answers = {shard: answer for shard, answer in answers.items() if shard not in refused}
            answers.update(_taken_final(refused, standing))
            if read_from == "replica":
                read_from = "primary"  # the replica may only be behind
            elif refused:
                answers.update(self._learn(refused, ways, deadline))
            pending = {shard: wanted[shard] for shard in refused if shard not in answers}
        return answers

    def _unconfirmed(
        self, states: Mapping[int, ShardState], ways: Mapping[int, _Way], deadline: Deadline
    ) -> dict[int, StaleEpoch]:
        """Why answers do not count of shards that take no writes: the next owner may have taken some since.

        It is decided in the control database that they go on elsewhere, and a server that is cut off does not hear it.
        """
        fenced = {shard: ways[shard].place for shard, state in states.items() if state.status in FENCED}
        if not fenced:
            return {}
        confirmed = self._places.confirm(fenced, deadline)
        return {shard: ways[shard].gate.unconfirmed(states[shard]) for shard in fenced.keys() - confirmed}

    def holders(self, deadline: Deadline) -> list[Cluster]:
        """The clusters that hold shards."""
        names = {self._places.get(shard, deadline).cluster for shard in range(self._places.shards)}
        return [cluster for name, cluster in self._clusters.items() if name in names]

    @property
    def cluster_names(self) -> tuple[str, ...]:
        """All that are configured."""
        return tuple(self._clusters)

    def cluster_of(self, shard: int, deadline: Deadline) -> str:
        """The cluster that owns a shard, as far as this process knows."""
        return self._places.get(shard, deadline).cluster

    def shard_at(self, cluster: str, start: int, deadline: Deadline) -> int:
        """A shard that a cluster owns, another one for most starts; `SchemaMissing` when it owns none."""
        count = self._places.shards
        for n in range(count):
            shard = (start + n) % count
            if self._places.get(shard, deadline).cluster == cluster:
                return shard
        raise SchemaMissing(f"{cluster} holds no shard.", hint="Run `tripstore status`.")

    def leader_of(self, cluster: str) -> Lead:
        """The newest promotion of it that this process has heard of."""
        return self._clusters[cluster].leader

    def may_write(self, shard: int, deadline: Deadline) -> bool:
        """Whether the breaker of the shard's cluster would let a write through; not while it has no primary here."""
        try:
            return self._clusters[self._places.get(shard, deadline).cluster].primary.writes.is_due
        except NodeUnavailable:
            return False

    def ask_cluster(self, cluster: str, verb: Callable[[Node], T]) -> T:
        """Ask a cluster's primary, whichever shards it holds."""
        return self._clusters[cluster].ask(verb)

    def replicas_of(self, cluster: str) -> list[GuardedNode]:
        """Its servers but for the one that leads."""
        return self._clusters[cluster].replicas

    def ask_all(self, verb: Callable[[Node], T]) -> dict[str, T | SchemalessError]:
        """Ask the primaries of all clusters, at once, whichever hold shards; each answer or why there is none."""

        def ask(cluster: Cluster) -> T | SchemalessError:
            try:
                return cluster.ask(verb)
            except SchemalessError as error:
                return error

        return self._fanout.run({name: partial(ask, cluster) for name, cluster in self._clusters.items()})

    def write_each(
        self,
        wanted: Mapping[int, W],
        verb: Callable[[Node, Mapping[int, W]], dict[int, A]],
        standing: Standing,
        deadline: Deadline,
    ) -> dict[int, A | SchemalessError]:
        """The same for changes beside the cells that may be repeated, as of entries and offsets: at the primaries.

        One that is not answered may have waited for a lock, which says nothing of its server.
        """
        return self._each(wanted, verb, standing, "primary_only", deadline, is_write=True)

    def write_many(
        self,
        cells: Mapping[int, list[NewCell]],
        standing: Standing,
        deadline: Deadline,
        *,
        may_exist: bool = False,
    ) -> dict[int, tuple[BatchAnswer, int] | SchemalessError]:
        """Write each shard's cells; one answer per shard: what was stored and under which epoch, or why not."""
        answers: dict[int, tuple[BatchAnswer, int] | SchemalessError] = {}
        pending = dict(cells)
        while pending:
            refused: dict[int, Refusal] = {}
            ways, unknown = self._ways(pending, standing, deadline)
            answers.update(unknown)
            for gate, outcome in self._write_parts(ways, pending, deadline, may_exist):
                if isinstance(outcome, NodeUnavailable):
                    outcome = _explained(outcome, ways[gate.shard], gate.check_write, deadline)
                if isinstance(outcome, StaleEpoch | SchemaMissing):
                    refused[gate.shard] = outcome
                elif isinstance(outcome, SchemalessError):
                    answers[gate.shard] = outcome
                else:
                    answers[gate.shard] = outcome, gate.epoch
            answers.update(_taken_final(refused, standing))
            final = self._learn(refused, ways, deadline) if refused else {}
            answers.update(final)
            pending = {shard: cells[shard] for shard in refused if shard not in final}
        return answers

    def _read_parts(
        self,
        ways: Mapping[int, _Way],
        wanted: Mapping[int, W],
        verb: Callable[[Node, Mapping[int, W]], dict[int, A]],
        standing: Standing,
        read_from: ReadFrom,
        deadline: Deadline,
        is_write: bool,
    ) -> Iterator[tuple[Mapping[int, W], dict[int, A] | SchemalessError]]:
        def ask(name: str, part: Mapping[int, W]) -> dict[int, A] | SchemalessError:
            cluster = self._clusters[name]
            is_fenced = standing.is_fenced
            try:
                if is_write:
                    return cluster.write(verb, part)
                return cluster.read(lambda node: verb(node, part), read_from, deadline, is_fenced=is_fenced)
            except SchemalessError as error:
                return error

        parts: defaultdict[str, dict[int, W]] = defaultdict(dict)
        for shard, way in ways.items():
            parts[way.cluster.name][shard] = wanted[shard]
        outcomes = self._fanout.run({name: _bind(ask, name, part) for name, part in parts.items()})
        yield from ((parts[name], outcome) for name, outcome in outcomes.items())

    def _write_parts(
        self, ways: Mapping[int, _Way], cells: Mapping[int, list[NewCell]], deadline: Deadline, may_exist: bool
    ) -> Iterator[tuple[Gate, BatchAnswer | SchemalessError]]:
        def send(name: str, batches: list[Batch]) -> list[BatchAnswer | SchemalessError]:
            try:
                return self._clusters[name].write(lambda node: node.put_many(batches, deadline))
            except SchemalessError as error:
                return [error] * len(batches)

        parts: defaultdict[str, list[Batch]] = defaultdict(list)
        for shard, way in ways.items():
            parts[way.cluster.name].append(Batch(way.gate, cells[shard], may_exist))
        outcomes = self._fanout.run({name: _bind(send, name, part) for name, part in parts.items()})
        for name, answers in outcomes.items():
            yield from zip((batch.gate for batch in parts[name]), answers, strict=True)

    def _ways(
        self, shards: Iterable[int], standing: Standing, deadline: Deadline, *, is_read: bool = False
    ) -> tuple[dict[int, _Way], dict[int, Unavailable]]:
        """The way to each of these shards; and of those whose place is not known, why."""
        ways: dict[int, _Way] = {}
        unknown: dict[int, Unavailable] = {}
        for shard in shards:
            try:
                ways[shard] = self._way(shard, standing, deadline, is_read=is_read)
            except Unavailable as error:
                unknown[shard] = error
        return ways, unknown

    def _way(self, shard: int, standing: Standing, deadline: Deadline, *, is_read: bool = False) -> _Way:
        place = self._places.get(shard, deadline)
        authority_epoch = standing.authority_epoch
        gate = Gate(
            shard,
            place.epoch,
            standing.kind,
            place.authority_epoch if authority_epoch is None else authority_epoch,
            is_read and standing.is_fenced,
        )
        return _Way(place, gate, self._clusters[place.cluster])

    def _learn_or_raise(self, shard: int, refusal: Refusal, went_by: Place, deadline: Deadline) -> None:
        """Learn where the shard is now; raise the refusal when asking again cannot help, or time is up."""
        if self._relearn({shard: refusal}, {shard: went_by}, deadline):
            raise refusal

    def _learn(
        self, refusals: Mapping[int, Refusal], ways: Mapping[int, _Way], deadline: Deadline
    ) -> dict[int, Refusal]:
        return self._relearn(refusals, {shard: ways[shard].place for shard in refusals}, deadline)

    def _relearn(
        self, refusals: Mapping[int, Refusal], went_by: Mapping[int, Place], deadline: Deadline
    ) -> dict[int, Refusal]:
        """Learn the places anew after refusals; return those that asking again cannot help."""
        metrics.call_repeated("stale_epoch")
        # A shard that is being handed over opens in a moment: the call need not wait for a silent source meanwhile.
        is_brief = all(_is_handed_over(refusal) for refusal in refusals.values())
        for shard, refusal in refusals.items():
            if _is_handed_over(refusal):
                self._clusters[went_by[shard].cluster].renew_soon()
        patience = Deadline(min(BRIEF_SECONDS, deadline.remaining_seconds())) if is_brief else deadline
        changed = self._places.learn(went_by, patience)
        final = {
            shard: refusal
            for shard, refusal in refusals.items()
            if deadline.remaining_seconds() < LEAST_SECONDS or not (shard in changed or _is_handed_over(refusal))
        }
        if len(final) < len(refusals):
            self._sleep(PAUSE_SECONDS)
        return final


def _explained(
    error: Refusal | NodeUnavailable, way: _Way, check: Callable[[ShardState], None], deadline: Deadline
) -> Refusal | NodeUnavailable:
    """Why a server is read-only: its shards are fenced, or it follows another one by now. Else an operator knows."""
    if not isinstance(error, NodeUnavailable) or not error.is_read_only or way.cluster.is_alone:
        return error
    shard = way.gate.shard
    try:
        primary = way.cluster.primary
        check(primary.ask(lambda node: node.heads([shard], deadline))[shard].state)
    except StaleEpoch as refusal:
        primary.writes.succeeded()  # it is there, and no call waits for it
        return refusal
    except (SchemalessError, KeyError):
        return error
    return error


def _is_final(refusal: Refusal, standing: Standing) -> bool:
    """Whether a caller is refused for its authority epoch: no look at places tells which backend is the authority."""
    return standing.authority_epoch is not None and isinstance(refusal, StaleEpoch) and refusal.is_of_authority


def _taken_final(refused: dict[int, Refusal], standing: Standing) -> dict[int, Refusal]:
    """Take those refusals out that are final."""
    final = {shard: refusal for shard, refusal in refused.items() if _is_final(refusal, standing)}
    for shard in final:
        del refused[shard]
    return final


def _is_handed_over(refusal: Refusal) -> bool:
    """Whether the shard will open again in a moment, here or elsewhere."""
    return isinstance(refusal, StaleEpoch) and refusal.status in PASSING


def _bind(function: Callable[[str, W], T], name: str, part: W) -> Callable[[], T]:
    return lambda: function(name, part)
