"""A process with experiments and without servers: everything is compared, the control database is a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from schemaless_core.config import parse_config
from schemaless_core.control.database import ControlDatabase
from schemaless_core.control.ledgers.ledgers import Ledgers
from schemaless_core.control.ledgers.timings import TimingLedger
from schemaless_core.store import CellStore
from tripstore.engines.validation.experiment.bench import Bench
from tripstore.engines.validation.ignores import Ignore
from tripstore.engines.validation.reads import Read
from tripstore.engines.validation.shadow.sampling import SamplingSettings
from tripstore.engines.validation.shadow.shadow import Shadow, ShadowSettings
from tripstore.engines.validation.verdicts import Mismatch, Tally
from tripstore.engines.validation.waiting import Waiting
from tripstore.facade.experiments.experiment import Experiment
from tripstore.facade.experiments.experiments import Experiments
from tripstore.facade.experiments.flags import ExperimentBook
from tripstore.facade.experiments.leftovers import beside_callers
from tripstore.facade.experiments.options import ExperimentOptions
from tripstore.facade.experiments.roll import Roll
from tripstore.facade.experiments.versions import RewrittenQuery
from tripstore.facade.known import Known
from tripstore.facade.shadowing import Shadowing
from tripstore.handover.authority import Authority, Backend

ALL = SamplingSettings(share=1, per_second=float("inf"))
#: Of a candidate, on two cores that do everything.
DEADLINE_SECONDS = 5.0


class _Arrived:
    """A mirror that has everything."""

    def arriving(self, _read: Read) -> Waiting[bool]:
        yield from ()
        return True


class Lab:
    """Of one process."""

    def __init__(self, control: ControlDatabase, bench: Bench, ignores: tuple[Ignore, ...], deadline: float) -> None:
        ledgers = Ledgers(control)
        self.control = control
        self.tally = Tally()
        self.timings = TimingLedger(ledgers)
        self.roll = Roll(ledgers)
        self.book = ExperimentBook(control)
        self.bench = bench
        self.shadow = Shadow(ShadowSettings(sampling=ALL, ignores=ignores), _Arrived(), self.tally)
        known = Known()
        known.learn_authority(Authority(1, Backend.LEGACY))
        shadowing = Shadowing(self.shadow, ALL, _no_store, _no_store)
        self.experiments = Experiments(self.book, self.roll, self.timings, bench, known, shadowing, deadline)

    def experiment(self, name: str = "billing.unpaid", **options: Any) -> Experiment:
        return Experiment(name, lambda: self.experiments, ExperimentOptions(**options))

    def set(self, name: str = "billing.unpaid", **flags: Any) -> None:
        """This process sees it at once."""
        self.book.change(lambda found: found.with_changes(name, **flags), "test.set")
        self.experiments.look()

    def outcomes(self) -> Mapping[tuple[str, str], int]:
        """What became of all that was offered: outcome and label."""
        assert self.shadow.drain(30), "some have no verdict"
        found = Counter[tuple[str, str]]()
        for (_name, outcome, label), count in self.tally.counts().items():
            found[str(outcome), label] += count
        return found

    def mismatches(self) -> list[Mismatch]:
        assert self.shadow.drain(30), "some have no verdict"
        return self.tally.mismatches()

    def close(self) -> None:
        self.experiments.close()
        self.shadow.close()


def rewritten(
    experiment: Experiment, control: Callable[..., Any], candidate: Callable[..., Any]
) -> RewrittenQuery[..., Any]:
    found = experiment(control)
    found.candidate(candidate)
    return found


def _no_store(*_asked: Any) -> CellStore:
    raise AssertionError("a trial asks no store")


@contextmanager
def lab(
    folder: Path, *, bench: Bench | None = None, ignores: tuple[Ignore, ...] = (), deadline: float = DEADLINE_SECONDS
) -> Iterator[Lab]:
    """With a control database of its own in this folder, or with the one that is there."""
    clusters = {"a": {"primary": f"sqlite:///{folder / 'a'}"}}
    config = parse_config({"datastore": "trips", "shards": 1, "clusters": clusters}, folder)
    control = ControlDatabase(config.control, config.datastore, config.tls, config.deadlines.connect_seconds)
    with closing(control):
        control.migrate()
        made = Lab(control, bench or Bench(beside_callers, cpu_share=float("inf")), ignores, deadline)
        with closing(made):
            yield made
