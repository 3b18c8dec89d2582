"""A caller's read or write: at the authority, whichever backend that is, and nowhere else.

A process goes by the row that it knows. When that is of yesterday the store refuses, answers to reads included: the
process reads the row and goes again. The caller hears nothing of it.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from tripstore.handover.authority import Authority, Backend
from tripstore.handover.ports import Operation, Ports, Refusal, Refused
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
    yield ASK
    value = ask(ports, known, operation)
    if isinstance(value, Refusal):
        return (yield from call_again(ports, known, operation))
    return Answer(value, known)


def ask(ports: Ports, known: Authority, operation: Operation[T]) -> T | Refused:
    """The one step of a call of which nothing comes between: by itself for a caller that counts microseconds.

    The epoch is presented by a process that knows the layout of that epoch, and by no other.
    """
    if known.layout is not None and known.layout != ports.layout:
        known.check_layout(ports.layout)
    if known.backend is Backend.LEGACY:
        return ports.legacy.call(operation, known.epoch)
    return ports.store.call(operation, known.epoch)


def call_again(ports: Ports, refused: Authority, operation: Operation[T]) -> Steps[Answer[T]]:
    """Do it at the authority of now, after the one of this row refused."""
    known = refused
    while True:
        known = yield from follow(ports, known)
        yield ASK
        value = ask(ports, known, operation)
        if not isinstance(value, Refusal):
            return Answer(value, known)
