"""`Company`: a migration, and a person who does what refusals say: commands and statements, one after the other."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, NamedTuple, TypeVar

from schemaless_core import Cell
from tests.acceptance.migrations import Migration
from tests.chaos.actors import wait_until
from tests.scale import SCALE

T = TypeVar("T")

FORWARD, BACK = "switch", "reverse"
HAND_OVERS = (["cutover", FORWARD], ["cutover", BACK])
#: A command of ours, or a statement for Postgres.
ADVICE = re.compile(r"`(?:tripstore ([^`]+)|((?:SELECT|UPDATE|COMMIT) [^`]+))`")
#: Of what is wrong these answer with an exit code of their own; 2 would be a command that does not exist.
WELL = frozenset({0, 1, 3})
REFUSED = 4
#: So often the advice of one gate is asked for anew.
ROUNDS = 3
ASKS = (["repair"], ["index", "repair"], ["diff", "cancel"], ["backfill", "cancel"])
WRITE = "UPDATE trips SET status = (CASE status WHEN 'completed' THEN 'requested' ELSE 'completed' END)::trip_status"

Deed = Callable[["Company"], None]


class Case(NamedTuple):
    """A gate, what makes it refuse, and what goes on beside the advice."""

    gate: str
    breaks: Deed
    meanwhile: Deed
    direction: str = FORWARD

    def __str__(self) -> str:
        return f"{self.gate}: {self.breaks.__name__}"


class Company:
    """A migration, and a person who does what the gates say."""

    def __init__(self, migration: Migration) -> None:
        self.migration = migration
        self._worker = ExitStack()
        self._held = ExitStack()
        self._is_served = False

    def gates(self, direction: str = FORWARD) -> list[Any]:
        document = self.migration.shell.call("cutover", "plan", "--direction", direction, "--json").document
        found: list[Any] = document["gates"]
        return found

    def gate(self, name: str, direction: str = FORWARD) -> Any:
        """One gate; of compared reads there is one for each operation, or one where nothing was compared."""
        found = [gate for gate in self.gates(direction) if family(gate["name"]) == family(name)]
        return next((gate for gate in found if not gate["is_passed"]), found[0])

    def obey(self, case: Case) -> None:
        """Break it, and do what is advised until the gate passes.

        What is done may find more, as a closer diff does: the gate refuses again, and says what to do of that.
        """
        case.breaks(self)
        refused = self.gate(case.gate, case.direction)
        assert not refused["is_passed"], refused

        self._open(case)

    def _follow(self, hint: str, case: Case) -> None:
        """The case's own part comes after each step; where no step is advised it is all that can be done."""
        advised = list(_advised(hint))
        for words, statement in advised:
            if words:
                self._run(words, case)
            else:
                self.migration.ask(statement)
            case.meanwhile(self)
            if self._is_open(case):
                return
        if not advised:
            case.meanwhile(self)

    def _is_open(self, case: Case) -> bool:
        return bool(self.gate(case.gate, case.direction)["is_passed"])

    def _run(self, words: list[str], case: Case) -> None:
        if words == ["worker", "run"]:
            self.serve()
        elif words == ["doctor"]:
            complaints = list(self._complaints())
            case.meanwhile(self)
            for hint in complaints:
                self._follow(hint.replace("`tripstore doctor`", ""), case)
        elif words[:2] in HAND_OVERS:
            self.hand_over(words, case.meanwhile)
        else:
            self._ran(words, WELL)

    def _ran(self, words: list[str], codes: frozenset[int]) -> int:
        asks = words[:2] in HAND_OVERS or any(words[: len(each)] == each for each in ASKS)
        answered = ["--yes"] if asks and "--yes" not in words else []
        ran = self.migration.shell.call(*words, *answered)
        assert ran.code in codes, (words, ran.stdout, ran.stderr)
        return ran.code

    def hand_over(self, words: list[str], meanwhile: Deed) -> None:
        """Obey each gate that refuses it, and give the same command once more."""
        if self._ran(words, WELL | {REFUSED}) != REFUSED:
            return
        direction = words[1]
        for gate in self.gates(direction):
            self._open(Case(gate["name"], nothing, meanwhile, direction))
        self._ran(words, frozenset({0}))

    def _open(self, case: Case) -> None:
        """What is done may be refused for another reason, with other advice: it is followed, too."""
        for _ in range(ROUNDS):
            gate = self.gate(case.gate, case.direction)
            if gate["is_passed"]:
                return
            self._follow(gate["hint"], case)
        wait_until(f"the gate passes: {case}", lambda: self._goes_on(case), seconds=30)

    def _goes_on(self, case: Case) -> bool:
        case.meanwhile(self)
        return self._is_open(case)

    def _complaints(self) -> Iterator[str]:
        """What `doctor` advises."""
        found = self.migration.shell.call("doctor", "--json").document
        yield from (each["advice"] for each in found["findings"] if not each["is_fine"])
        yield from (each["hint"] for each in found["legacy"]["complaints"] if each["severity"] == "error")

    def serve(self) -> None:
        if not self._is_served:
            self._worker.enter_context(self.migration.worker())
            self._is_served = True

    def stop(self) -> None:
        """The worker ends."""
        self._is_served = False
        self._worker.close()
        self.leave()

    def enter(self, held: AbstractContextManager[T]) -> T:
        """Something stays open until `leave`."""
        return self._held.enter_context(held)

    def leave(self) -> None:
        self._held.close()

    def change(self) -> None:
        self.migration.ask(WRITE)

    def base(self) -> Cell:
        """The first trip, as both stores have it."""
        (row_key, *_) = self.migration.row_keys()
        with self.migration.datastore() as datastore:
            found = datastore.get_cell_latest(row_key, "BASE")
        assert found is not None
        return found

    def past(self) -> None:
        """Everything was copied, and found equal."""
        self.migration.run("backfill", "start")
        self.migration.run("diff", "start")


def in_short(cases: Sequence[Case]) -> list[Case]:
    """Each gate's first case; `make soak` has all."""
    firsts = {(case.direction, family(case.gate)): case for case in reversed(cases)}
    return [case for case in cases if SCALE >= 1 or firsts[case.direction, family(case.gate)] is case]


def family(gate: str) -> str:
    """The name of a gate without what it speaks of."""
    return re.split(r" of |(?<=^index) ", gate)[0].replace("indexes", "index")


def _advised(hint: str) -> Iterator[tuple[list[str], str]]:
    yield from ((shlex.split(command), statement) for command, statement in ADVICE.findall(hint))


def nothing(_company: Company) -> None:
    """The advice alone is enough."""
