"""A caller's read or write: at the authority, whoever that is, and nowhere else.

A process goes by the row that it knows. When that is of yesterday the store refuses, answers to reads included: the
process reads the row and goes again. The caller hears nothing of it.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from tripstore.handover.authority import Authority, Backend
from tripstore.handover.ports import Operation, Ports, Refusal
from tripstore.handover.settle import follow
from tripstore.handover.steps import Step, Steps

T = TypeVar("T")

ASK = Step("call.ask", "ask the authority")


class Answer(NamedTuple, Generic[T]):
    """What the authority said, and by which row it was the authority."""

    value: T
    authority: Authority


def call(ports: Ports, known: Authority, operation: Operation[T]) -> Steps[Answer[T]]:
    """Do it at the authority."""
    while True:
        yield ASK
        if known.backend is Backend.LEGACY:
            value = ports.legacy.call(operation, known.epoch)
        else:
            value = ports.store.call(operation, known.epoch)
        if not isinstance(value, Refusal):
            return Answer(value, known)
        known = yield from follow(ports, known)
