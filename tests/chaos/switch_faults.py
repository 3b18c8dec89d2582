"""Accidents of hand-overs: what happens to whom, where in his steps, and which of them a run has."""

from __future__ import annotations

import random
from typing import NamedTuple

from tripstore.migration.cutover.plan import Direction


class Fault(NamedTuple):
    """What happens to whom, where in his steps."""

    victim: str
    action: str
    point: str

    def __str__(self) -> str:
        return f"{self.victim}: {self.action} at {self.point}"


def faults(victim: str, action: str, *points: str) -> list[Fault]:
    return [Fault(victim, action, point) for point in points]


FORWARD = (
    "switch.close",
    "switch.barrier",
    "switch.shut",
    "relay.count",
    "switch.decide",
    "settle.obey",
    "settle.open",
)
BACK = ("back.close", "back.shut", "back.count", "back.decide", "settle.obey")
FAULTS = {
    Direction.FORWARD: [
        *faults("switcher", "kill", *FORWARD),
        *faults("switcher", "stop", *FORWARD),
        *faults("service", "kill", "call.ask", "put.before_commit", "settle.look", "settle.wait"),
        *faults("service", "stop", "call.ask", "put.before_commit", "put.updated", "settle.look"),
        *faults("worker", "kill", "relay.claim", "relay.send", "relay.mark", "reverse.pass"),
        *faults("worker", "stop", "relay.claim", "relay.send", "relay.mark", "reverse.pass"),
        *faults("postgres", "kill", "switch.close", "switch.barrier", "relay.count", "switch.decide", "settle.open"),
        *faults("postgres", "stop", "switch.shut", "switch.decide"),
        *faults("store", "kill", "switch.shut", "settle.open"),
        *faults("store", "stop", "relay.count", "settle.open"),
    ],
    Direction.BACK: [
        *faults("switcher", "kill", *BACK),
        *faults("switcher", "stop", *BACK),
        *faults("service", "kill", "put.before_send", "put.answered", "batch.answered", "call.ask"),
        *faults("service", "stop", "put.before_send", "put.answered", "batch.before_send", "call.ask"),
        *faults("worker", "kill", "reverse.write", "reverse.applied", "triggers.before_advance"),
        *faults("worker", "stop", "reverse.write", "reverse.applied", "triggers.before_advance"),
        *faults("postgres", "kill", "back.close", "back.shut", "back.count", "back.decide", "settle.obey"),
        *faults("postgres", "stop", "back.count", "back.decide"),
        *faults("store", "kill", "back.close", "back.shut", "back.count"),
        *faults("store", "stop", "back.shut", "back.count"),
    ],
}


class Accidents:
    """For a third of the hand-overs, which go to and fro. Whose turn it is keeps it until it has befallen him."""

    def __init__(self, hand_overs: int) -> None:
        self._turns = range(2, hand_overs, 3)
        self._victims = ["switcher", "service", "worker", "postgres", "store"]
        random.shuffle(self._victims)
        #: Who had none yet, though it was his turn.
        self.owed: list[str] = []

    def next(self, number: int, direction: Direction) -> Fault | None:
        """What is to happen in this hand-over."""
        if number in self._turns:
            self.owed.append(self._victims[self._turns.index(number) % len(self._victims)])
        if not self.owed:
            return None
        return random.choice([fault for fault in FAULTS[direction] if fault.victim == self.owed[0]])
