"""Datastores of one shard each: one leads, the others are its standbys, and they may change places.

Promotion and return are the production steps. What lies below them (claims of copies, pages, a log in many shards) is
explored with the moves of shards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from schemaless_core.promotion.ports import SILENT
from schemaless_core.replication.ports import (
    LeadAnswer,
    PromotePorts,
    ReturnPorts,
    Standby,
    StandbySeen,
    StandbyState,
)
from schemaless_core.replication.steps import come_back, promote
from schemaless_core.steps import Steps
from tests.explorer.programs import Node, Program
from tests.explorer.standby_world import (
    COMES,
    FATE,
    MOVED,
    RO,
    RW,
    SECOND,
    STRIDE,
    Outcomes,
    Site,
    StandbyBudget,
    StandbyRules,
    StandbyWorld,
    recorded,
    with_site,
)
from tests.explorer.world import Place, Violation, replaced

#: What a scene's actors do: the site, and which steps.
Code = Callable[[Any], Steps[Any]]


def promoter(site: int, *, is_forced: bool = False) -> tuple[int, str, Code]:
    """Have a datastore lead, by the production steps."""

    def code(ports: PromotePorts) -> Steps[Any]:
        return promote(ports, is_forced=is_forced)

    return site, "promote by force" if is_forced else "promote", code


def returner(site: int) -> tuple[int, str, Code]:
    return site, "return", come_back


class StandbyModel:
    """One scene."""

    may_stop: tuple[int, ...] = ()

    def __init__(
        self,
        rules: StandbyRules,
        actors: tuple[tuple[int, str, Code], ...],
        budget: StandbyBudget,
        *,
        returns: frozenset[int],
        standbys: int = 1,
    ) -> None:
        """`returns`: which of them an operator has come back when it has led."""
        self._rules = rules
        self._budget = budget
        self._returns = returns
        self._standbys = standbys
        self._sites = [site for site, _kind, _code in actors]
        self._kinds = [kind for _site, kind, _code in actors]
        self.programs = [Program(code, tools_of=_tools_of(kind)) for _site, kind, code in actors]

    def first(self) -> StandbyWorld:
        leads = Site(leads=True, of=SECOND, placed=1).opened(1)
        follows = Site(standby=Standby(StandbyState.FOLLOWS))
        sites = (leads, *(follows,) * self._standbys)
        return StandbyWorld((Place(0),) * len(self.programs), self._budget, sites)

    def moves(self, w: StandbyWorld) -> Iterator[tuple[int, str, StandbyWorld]]:
        for me, program in enumerate(self.programs):
            place = w.places[me]
            if w.sites[self._sites[me]].is_lost or not self._may_begin(w, me):
                continue
            node: Node = program.nodes[place.node]
            if node.call is None:
                if node.number:
                    yield me, f"{me} begins again", w._replace(places=replaced(w.places, me, Place(0)))
                continue
            name, arguments = node.call
            verb = getattr(self, name.replace(".", "_"))
            for label, after, answer in verb(w, self._sites[me], *arguments):
                yield (
                    me,
                    f"{me} {label}",
                    after._replace(places=replaced(after.places, me, Place(node.after(answer).number))),
                )
            if name != "record.find" and w.budget.kills:
                budget = w.budget._replace(kills=w.budget.kills - 1)
                yield FATE, f"{me} is killed", w._replace(budget=budget, places=replaced(w.places, me, Place(0)))
        yield from self._others(w)

    def _may_begin(self, w: StandbyWorld, me: int) -> bool:
        """An operator goes on with what was begun by force; begun it is so often alone."""
        is_begun = w.sites[self._sites[me]].standby.is_forced
        return self._kinds[me] != "promote by force" or bool(w.budget.forces) or is_begun or w.places[me].node > 0

    def _others(self, w: StandbyWorld) -> Iterator[tuple[int, str, StandbyWorld]]:
        for n, site in enumerate(w.sites):
            if site.is_lost:
                continue
            if n == SECOND and w.budget.losses and w.budget.forces:
                budget = w.budget._replace(losses=w.budget.losses - 1)
                yield FATE, f"{n} is lost", with_site(w, n, site._replace(is_lost=True))._replace(budget=budget)
            is_unheard = site.leads and not site.is_heard and site.is_new
            if w.budget.servers and is_unheard:
                budget = w.budget._replace(servers=w.budget.servers - 1)
                after = with_site(w, n, site.with_other_server())._replace(budget=budget)
                yield FATE, f"a server of {n} is lost, and its replica leads", after
            if site.takes_puts and w.budget.puts:
                cell = w.budget.puts
                after = with_site(w, n, site._replace(log=(*site.log, cell)))
                budget = w.budget._replace(puts=cell - 1)
                yield FATE, f"a put at {n}", after._replace(budget=budget, acknowledged=w.acknowledged | {cell})
            if self._is_copy(site) and not w.sites[site.of].is_lost:
                copied = self._copied(site, w.sites[site.of], 1)
                if copied is not None and copied != site:
                    yield FATE, f"{n} copies a page", with_site(w, n, copied)
            # One that is about to lead is refused, and so is one whose topology is not behind the other one's epoch.
            is_open = site.leads and site.standby.state is not StandbyState.OPENING
            may_return = is_open or site.standby.state is StandbyState.LEFT
            latest = site.placed if site.leads else site.epoch
            for m, other in enumerate(w.sites):
                is_led = other.standby.state is StandbyState.LEADS and other.epoch > latest and not other.is_lost
                if n in self._returns and may_return and is_led and not site.promotion:
                    standby = Standby(StandbyState.RETURNS, epoch=other.epoch)
                    returns = recorded(site, standby, leads=False)._replace(of=m)
                    yield FATE, f"{n} is to come back", with_site(w, n, returns)
            yield from self._promotions(w, n, site)

    def _is_copy(self, site: Site) -> bool:
        """What came back and was not cut yet, and leads by force, is no copy that follows."""
        follows = site.standby.state is StandbyState.FOLLOWS
        return site.state == MOVED and (
            follows or (site.standby.state is StandbyState.CLOSING and not site.standby.is_forced)
        )

    def _promotions(self, w: StandbyWorld, n: int, site: Site) -> Iterator[tuple[int, str, StandbyWorld]]:
        """Of a cluster within a datastore: decided by its topology, and then another server is opened."""
        if w.budget.promotions and site.state == RW and site.leads and not site.promotion:
            decided = site._replace(state=RO, promotion="decided", topology=site.topology + 1, placed=site.epoch + 1)
            budget = w.budget._replace(promotions=w.budget.promotions - 1)
            yield FATE, f"a promotion at {n} is decided", with_site(w, n, decided)._replace(budget=budget)
        if site.promotion:
            # The server that is opened is another one: that its fellow was closed it may not have heard.
            opened = site.opened(site.epoch + 1) if site.state in (RO, MOVED) else site
            yield FATE, f"a promotion at {n} opens", with_site(w, n, opened._replace(promotion=""))

    # ---- what calls do -----------------------------------------------------------------------------------------

    def record_find(self, w: StandbyWorld, me: int) -> Outcomes:
        site = w.sites[me]
        yield f"finds {site.standby.state}", w, StandbySeen(site.standby, site.version, site.topology)

    def record_change(self, w: StandbyWorld, me: int, seen: StandbySeen, standby: Standby) -> Outcomes:
        if not self._is_as(w, me, seen):
            yield "changes nothing", w, False
            return
        after = with_site(w, me, recorded(w.sites[me], standby))
        if standby.state is StandbyState.CLOSING and standby.is_forced:
            after = after._replace(budget=w.budget._replace(forces=max(0, w.budget.forces - 1)))
        yield f"writes {standby.state}", after, True

    def record_decide(self, w: StandbyWorld, me: int, seen: StandbySeen, standby: Standby) -> Outcomes:
        if not self._is_as(w, me, seen):
            yield "decides nothing", w, False
            return
        decided = recorded(w.sites[me], standby, leads=True)._replace(placed=standby.epoch)
        after = with_site(w, me, decided)
        yield "decides", after._replace(was_forced=w.was_forced or standby.is_forced), True

    def _is_as(self, w: StandbyWorld, me: int, seen: StandbySeen) -> bool:
        return w.sites[me].version == seen.version or not self._rules.compares_record

    def other_leads(self, w: StandbyWorld, me: int, epoch: int, _job: str) -> Outcomes:
        yield from self._silent(w, w.sites[me].of)
        yield "sees whether the other leads", w, self._lead(w, me, epoch)

    def other_give(self, w: StandbyWorld, me: int, epoch: int, _job: str) -> Outcomes:
        n = w.sites[me].of
        yield from self._silent(w, n)
        other, lead = w.sites[n], self._lead(w, me, epoch)
        if lead is not LeadAnswer.HELD:
            yield f"finds that the lead is {lead.value}", w, lead
        elif other.promotion and self._rules.waits_for_promotions:
            yield "is not given the lead", w, LeadAnswer.BUSY
        else:
            left = Standby(StandbyState.LEFT, epoch, taker=str(me))
            yield "is given the lead", with_site(w, n, recorded(other, left, leads=False)), LeadAnswer.GIVEN

    def _lead(self, w: StandbyWorld, me: int, epoch: int) -> LeadAnswer:
        other = w.sites[w.sites[me].of]
        if other.leads:
            is_later = max(other.epoch, other.standby.epoch) >= epoch and self._rules.gives_upwards
            return LeadAnswer.TAKEN if is_later else LeadAnswer.HELD
        is_mine = other.standby.state is StandbyState.LEFT and (other.standby.taker, other.standby.epoch) == (
            str(me),
            epoch,
        )
        return LeadAnswer.GIVEN if is_mine or not self._rules.names_taker else LeadAnswer.TAKEN

    def other_bring(self, w: StandbyWorld, me: int) -> Outcomes:
        yield from self._silent(w, w.sites[me].of)
        yield "brings what waits in the other's buffers", w, True

    def other_close(self, w: StandbyWorld, me: int, epoch: int) -> Outcomes:
        yield from self._silent(w, w.sites[me].of)
        yield "closes the other", self._shut(w, w.sites[me].of, epoch), None

    def _shut(self, w: StandbyWorld, n: int, epoch: int) -> StandbyWorld:
        site = w.sites[n]
        if not self._rules.closes or (site.epoch >= epoch and self._rules.closes_below_epoch):
            return w
        return with_site(w, n, site._replace(state=MOVED))

    def copies_next_epoch(self, w: StandbyWorld, me: int, known: int) -> Outcomes:
        yield "numbers an epoch", w, (max(w.sites[me].epoch, known) // STRIDE + 1) * STRIDE

    def copies_catch_up(self, w: StandbyWorld, me: int) -> Outcomes:
        yield from self._silent(w, w.sites[me].of)
        site = w.sites[me]
        if not self._rules.copies_rest:
            yield "copies nothing", w, True
            return
        if site.standby.state not in (StandbyState.FOLLOWS, StandbyState.CLOSING) or site.state != MOVED:
            yield "copies nothing to what is no copy", w, True
            return
        copied = self._copied(site, w.sites[site.of], 9)
        if copied is None:
            yield "finds an older epoch", w, False
        else:
            yield "copies all", with_site(w, me, copied), True

    def copies_replicated(self, w: StandbyWorld, me: int) -> Outcomes:
        yield from self._silent(w, me)
        site = w.sites[me]
        after = with_site(w, me, site._replace(is_heard=True)) if self._rules.waits_for_replicas else w
        yield "has it on its replicas", after, True

    def copies_are_open(self, w: StandbyWorld, me: int, epoch: int) -> Outcomes:
        site = w.sites[me]
        are_open = site.takes_puts or site.state == RO or site.epoch > epoch
        yield "sees whether it is open", w, are_open or not self._rules.looks_again

    def _copied(self, site: Site, source: Site, cells: int) -> Site | None:
        """Up to so many cells more; what is above a fork is cut."""
        is_about_to_lead = site.standby.state is StandbyState.CLOSING and self._rules.copies_below_epoch
        if is_about_to_lead and source.epoch >= site.standby.epoch:
            return None
        if source.epoch < site.epoch or not (source.leads or source.standby.state is StandbyState.LEFT):
            return None
        if source.epoch > site.epoch and self._rules.cuts:
            firsts = [first for each, first in {*site.forks} ^ {*source.forks}]
            site = site._replace(log=site.log[: min(firsts, default=1) - 1])
        end = len(site.log) + cells
        return site._replace(epoch=source.epoch, forks=source.forks, log=site.log + source.log[len(site.log) : end])

    def copies_arrive(self, w: StandbyWorld, me: int, epoch: int) -> Outcomes:
        site = w.sites[me]
        is_closed = site.state == MOVED or (site.state != COMES and self._rules.closes_own)
        epoch = self._as_placed(site, epoch)
        if is_closed and site.epoch < epoch:
            site = site._replace(state=COMES, is_heard=not self._budget.servers)
        has_come = site.state != MOVED and (site.epoch >= epoch or site.state == COMES)
        yield "has the copies arrive", with_site(w, me, site), has_come

    def copies_open(self, w: StandbyWorld, me: int, epoch: int, opening: object) -> Outcomes:
        site = w.sites[me]
        epoch = self._as_placed(site, epoch)
        if site.state == COMES and site.epoch < epoch:
            site = site.opened(epoch if self._rules.raises_epoch else max(1, site.epoch))
            site = site._replace(is_heard=not self._budget.servers)
            site = site if self._rules.raises_epoch else site._replace(placed=site.epoch)
        yield "opens", with_site(w, me, site), True

    def _as_placed(self, site: Site, epoch: int) -> int:
        return max(epoch, site.placed) if site.leads and self._rules.opens_as_placed else epoch

    def authority_opening(self, w: StandbyWorld, me: int) -> Outcomes:
        yield "asks for the authority", w, None

    def own_close(self, w: StandbyWorld, me: int, epoch: int) -> Outcomes:
        if not self._rules.shuts_first:
            yield "closes nothing", w, None
            return
        yield "closes its own", self._shut(w, me, epoch), None

    def own_bring(self, w: StandbyWorld, me: int) -> Outcomes:
        n = w.sites[me].of
        yield from self._silent(w, n)
        other = w.sites[n]
        if not other.leads or other.state != RW:
            yield "finds none that leads", w, False
            return
        missing = tuple(cell for cell in w.sites[me].log if cell not in other.log)
        after = with_site(w, n, other._replace(log=other.log + missing)) if self._rules.brings else w
        yield "brings what it alone has", after, True

    def own_leave(self, w: StandbyWorld, me: int) -> Outcomes:
        yield "leaves its indexes", w, True

    def _silent(self, w: StandbyWorld, n: int) -> Outcomes:
        """What the one that is asked may not answer; then there is no other answer where it is lost."""
        if w.sites[n].is_lost:
            yield "finds it lost", w, SILENT
        elif w.budget.silences:
            budget = w.budget._replace(silences=w.budget.silences - 1)
            yield "hears nothing", w._replace(budget=budget), SILENT

    # ---- what must hold ----------------------------------------------------------------------------------------

    def check(self, w: StandbyWorld) -> None:
        """At every moment."""
        open_ones = [site for site in w.sites if site.state == RW and not site.is_lost]
        if len(open_ones) > 1 and not w.was_forced:
            raise Violation("I9: two datastores take puts")
        if sum(site.leads for site in w.sites) > 1 and not w.was_forced:
            raise Violation("I9: two topologies have the shards")
        if any(site.standby.state is StandbyState.FOLLOWS for site in open_ones):
            raise Violation("I9: a standby takes puts")
        for cell in w.acknowledged.difference(*(site.log for site in w.sites)):
            raise Violation(f"I1: cell {cell} was acknowledged, and is nowhere")
        for n, site in enumerate(w.sites):
            others = [other for m, other in enumerate(w.sites) if m != n]
            is_only = site.leads and site.state == RW and not any(other.leads for other in others)
            is_whole = not w.was_forced or all(other.standby.state is StandbyState.FOLLOWS for other in others)
            are_closed = all(other.state == MOVED for other in others)
            if is_only and is_whole and are_closed and w.acknowledged - {*site.log}:
                raise Violation(f"I1: datastore {n} leads alone, and lacks what was acknowledged")
            if len({*site.log}) != len(site.log):
                raise Violation(f"I2: datastore {n} has a cell twice")
            if site.standby.state is StandbyState.LEADS and site.leads and site.state == MOVED:
                raise Violation(f"I1: datastore {n} is said to lead, and its shard is a copy that no command opens")
        for copy in w.sites:
            source = w.sites[copy.of]
            is_copy = copy.standby.state is StandbyState.FOLLOWS and copy.epoch == source.epoch and copy.state == MOVED
            if is_copy and copy.log != source.log[: len(copy.log)]:
                raise Violation("I3: the copy is not the log")
            if copy.epoch == source.epoch and copy.state == source.state == RW:
                raise Violation("I7: a position means two things")

    def is_good(self, w: StandbyWorld) -> bool:
        """One of them takes puts, and no promotion is half done."""
        sites = [site for site in w.sites if not site.is_lost]
        return any(site.takes_puts and site.leads for site in sites) and not any(
            site.standby.state in (StandbyState.CLOSING, StandbyState.OPENING, StandbyState.RETURNS) for site in sites
        )

    def describe(self, w: StandbyWorld) -> str:
        return f"{w.sites}, acknowledged {set(w.acknowledged)}"


def _tools_of(kind: str) -> Callable[[Callable[[str], Any]], Any]:
    def made(port: Callable[[str], Any]) -> PromotePorts | ReturnPorts:
        if kind == "return":
            return ReturnPorts(port("record"), port("own"))
        return PromotePorts(port("record"), port("other"), port("copies"), port("authority"))

    return made
