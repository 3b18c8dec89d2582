"""`BesideLogs`: what stands beside the logs of the datastore that leads, as it comes to copies.

Each of its clusters says by one answer what stands beside all of its shards, as sums. Where a copy's sum is another
one, it is read, of many shards at once. So what costs over a long way is how many clusters there are, and not how many
shards.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from schemaless_core.backups.beside import for_restored
from schemaless_core.deadline import Deadline
from schemaless_core.engine.copies import Beside, BesideSum, NumberedLines, Row, Rows
from schemaless_core.engine.mending import Mended
from schemaless_core.failpoints import reach
from schemaless_core.logcopy.checks import IDS_PER_SUM, check, recopy
from schemaless_core.logcopy.ends import ClusterEnd
from schemaless_core.replication.copied import StandbyCopies

#: Calls at a time, of both sides.
THREADS = 8
SECONDS = 60.0
#: Shards whose offsets are read together, and rows of them, or lines, in one answer.
SHARDS_PER_LOOK = 512
ROWS_PER_LOOK = 20_000
#: What repair changed is copied again together if no more added ids are between: to ask once more takes longer.
GAP_IDS = 100
#: Columns of numbered lines.
_NUMBER, _TOKEN, _SHARD, _ADDED_ID, _ACTION = range(5)


class _Log(NamedTuple):
    """A shard whose copy lacks something."""

    shard: int
    #: Up to which its copy has the log.
    head: int
    theirs: BesideSum
    ours: BesideSum


class BesideLogs:
    """Of one process. Not safe to share by threads."""

    def __init__(self, others: Mapping[str, ClusterEnd], copies: StandbyCopies) -> None:
        """`others`: the primaries of the clusters that lead."""
        self._others = others
        self._copies = copies
        #: By shard: what its copy was given all of.
        self._given: dict[int, BesideSum] = {}
        #: By shard: the number of its last line that its copy has. Lines of one shard are numbered as they commit.
        self._marks: dict[int, int] = {}
        #: Shards of whose copies it is known what they have that the log has not.
        self._looked: set[int] = set()

    def forget(self, shard: int) -> None:
        """Another server leads: numbers of lines are its own, and it may lack some."""
        self._given.pop(shard, None)
        self._marks.pop(shard, None)
        self._looked.discard(shard)

    def copy(self, places: Mapping[int, str], heads: Mapping[int, int]) -> int:
        """Copy what is not here; return of how many shards that was. `heads`: up to which the copies are.

        What a group has passed and is not here it gets again: its offset is no higher than the copy's end.
        """
        ours = self._copies.sums_beside()
        shards: defaultdict[str, list[int]] = defaultdict(list)
        for shard, cluster in places.items():
            shards[cluster].append(shard)

        def copied(cluster: str) -> int:
            end = self._others[cluster]
            theirs = end.ask(lambda copies: copies.sums_beside(Deadline(SECONDS)))
            logs = [
                _Log(shard, heads[shard], theirs[shard], ours.get(shard, BesideSum()))
                for shard in shards[cluster]
                if shard in theirs
            ]
            return self._copied(end, [each for each in logs if self._is_news(each)])

        with ThreadPoolExecutor(THREADS) as threads:
            return sum(threads.map(copied, shards))

    def _is_news(self, log: _Log) -> bool:
        return not log.theirs.is_that_of(log.ours) and log.theirs != self._given.get(log.shard)

    def _copied(self, end: ClusterEnd, logs: list[_Log]) -> int:
        if lines := [each for each in logs if each.theirs.lines != each.ours.lines]:
            self._copy_lines(end, lines)
        for first in range(0, len(logs), SHARDS_PER_LOOK):
            self._copy_few(end, logs[first : first + SHARDS_PER_LOOK])
        return len(logs)

    # ---- offsets, parked cells, histories --------------------------------------------------------------------------

    def _copy_few(self, end: ClusterEnd, logs: list[_Log]) -> None:
        shards = [each.shard for each in logs]
        purged = [each.shard for each in logs if each.theirs.purged_keys != each.ours.purged_keys]
        found = end.ask(lambda copies: copies.few_of(shards, purged, Deadline(SECONDS)))
        parked: defaultdict[int, list[Row]] = defaultdict(list)
        for row in _parked(end, shards):
            parked[int(row[1])].append(row)

        def give(log: _Log) -> None:
            look = found[log.shard]
            self._give(log, look._replace(tables={**look.tables, "trigger_parked": parked[log.shard]}))

        reach("replicate.beside_read")
        with ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(give, logs))

    def _give(self, log: _Log, found: Beside) -> None:
        last_created_at = self._copies.last_created_at(log.shard, log.head, found)
        given = for_restored(found, log.head, last_created_at)
        is_given = self._copies.give(log.shard, given)
        reach("replicate.beside_given")
        if is_given and given == for_restored(found, sys.maxsize, last_created_at):
            self._given[log.shard] = log.theirs  # all of it: nothing was above the end of the copy

    # ---- what repair and purges changed ----------------------------------------------------------------------------

    def _copy_lines(self, end: ClusterEnd, logs: list[_Log]) -> None:
        new: defaultdict[int, int] = defaultdict(int)
        there = [each for each in logs if each.theirs.lines[0]]
        for page in _lines(end, [each.shard for each in there], min(map(self._mark, there), default=0)):
            lines: defaultdict[int, list[Row]] = defaultdict(list)
            for line in page:
                lines[int(line[_SHARD])].append(line)
            its = [each for each in logs if lines[each.shard]]
            with ThreadPoolExecutor(THREADS) as threads:
                counts = threads.map(lambda log: self._mend(end, log, lines[log.shard]), its)  # noqa: B023  # it ends here
                for log, count in zip(its, counts, strict=True):
                    new[log.shard] += count
        undone = [each for each in logs if each.ours.lines[0] + new[each.shard] > each.theirs.lines[0]]
        self._undo(end, [each for each in undone if each.shard not in self._looked])

    def _mark(self, log: _Log) -> int:
        return self._marks.get(log.shard, log.theirs.first_line - 1)

    def _mend(self, end: ClusterEnd, log: _Log, lines: list[Row]) -> int:
        """Have a copy be as these lines say, if it does not know them; how many it did not know.

        First the copy, then the lines: of a process that died between both, another one does it again.
        """
        own, tokens = self._copies.end(log.shard), [bytes(line[_TOKEN]) for line in lines]
        known = own.ask(lambda copies: copies.known_lines(tokens, Deadline(SECONDS)))
        new = [line for line, token in zip(lines, tokens, strict=True) if token not in known]
        if new:
            changed = {int(line[_ADDED_ID]) for line in new if line[_ACTION] != Mended.PURGE}
            purged = {int(line[_ADDED_ID]) for line in new} - changed
            self._copies.pass_over(log.shard, purged)
            for first, last in runs((each for each in changed if each <= log.head), GAP_IDS):
                recopy(end, own, log.shard, first, last)
            reach("replicate.mended")
            self._copies.put_lines(log.shard, [line[_NUMBER + 1 :] for line in new])
            reach("replicate.lines_given")
        self._marks[log.shard] = int(lines[-1][_NUMBER])
        return len(new)

    def _undo(self, end: ClusterEnd, logs: list[_Log]) -> None:
        """What a promotion has undone, or this datastore did alone while it led: lines that the log knows nothing of.

        They stay; what they changed is compared.
        """
        its = {each.shard: each for each in logs}
        clusters: defaultdict[str, list[int]] = defaultdict(list)
        for shard in its:
            clusters[self._copies.places[shard]].append(shard)
        for shards in clusters.values():
            own = self._copies.end(shards[0])
            for page in _lines(own, shards, min(its[shard].ours.first_line for shard in shards) - 1):
                tokens = [bytes(line[_TOKEN]) for line in page]
                known = end.ask(lambda copies: copies.known_lines(tokens, Deadline(SECONDS)))  # noqa: B023  # at once
                self._compare(end, its, [line for line in page if bytes(line[_TOKEN]) not in known])
        self._looked |= its.keys()

    def _compare(self, end: ClusterEnd, logs: Mapping[int, _Log], lines: list[Row]) -> None:
        changed: defaultdict[int, set[int]] = defaultdict(set)
        for line in lines:
            changed[int(line[_SHARD])].add(int(line[_ADDED_ID]))
        for shard, added_ids in changed.items():
            there = (each for each in added_ids if each <= logs[shard].head)
            for first, last in runs(there, IDS_PER_SUM):
                check(end, self._copies.end(shard), shard, first, last)


def runs(added_ids: Iterable[int], gap: int) -> Iterator[tuple[int, int]]:
    """The first and the last of those that are no further apart than this."""
    first = last = 0
    for each in sorted(added_ids):
        if first and each - last > gap:
            yield first, last
            first = 0
        first, last = first or each, each
    if first:
        yield first, last


def _parked(end: ClusterEnd, shards: Collection[int]) -> Iterator[Row]:
    after: Row | None = None
    while page := _parked_page(end, shards, after):
        yield from page
        after = page[-1]
        reach("replicate.parked_read")


def _parked_page(end: ClusterEnd, shards: Collection[int], after: Row | None) -> Rows:
    return end.ask(lambda copies: copies.parked_of(shards, after, ROWS_PER_LOOK, Deadline(SECONDS)))


def _lines(end: ClusterEnd, shards: Collection[int], mark: int) -> Iterator[Rows]:
    """Pages of the audit table of a server."""
    is_end = not shards
    while not is_end:
        page = _lines_page(end, shards, mark)
        yield page.lines
        mark, is_end = page.mark, page.is_end


def _lines_page(end: ClusterEnd, shards: Collection[int], mark: int) -> NumberedLines:
    return end.ask(lambda copies: copies.lines_of(shards, mark, ROWS_PER_LOOK, Deadline(SECONDS)))
