"""`storm`: many tasks ask, and most are cancelled at some moment. Each answer is held against its question."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from pymysql import err
from pymysql.constants import COMMAND

from schemaless_core.engine.mysql.wire.connection import DeadlineConnection

#: Longer than a question takes, so that some are answered.
CANCELLED_SECONDS = 0.006
CANCELLED_SHARE = 0.8

#: Asks for a row, and says whose the answer is.
Ask = Callable[[UUID], Awaitable[UUID]]


@dataclass
class Weather:
    """What became of the questions of a storm."""

    answered: int = 0
    cancelled: int = 0
    #: Questions that had the answer of another, or one that made no sense.
    crossed: list[UUID] = field(default_factory=list)


async def storm(ask: Ask, rows: Sequence[UUID], seconds: float, askers: int) -> Weather:
    """Ask for so long by so many tasks."""
    weather, end = Weather(), asyncio.get_running_loop().time() + seconds
    await asyncio.gather(*(_ask_on(ask, rows, weather, end, random.Random(n)) for n in range(askers)))
    return weather


async def _ask_on(ask: Ask, rows: Sequence[UUID], weather: Weather, end: float, chance: random.Random) -> None:
    loop = asyncio.get_running_loop()
    while loop.time() < end:
        row = chance.choice(rows)
        asking = asyncio.ensure_future(ask(row))
        if chance.random() < CANCELLED_SHARE:
            loop.call_later(chance.random() * CANCELLED_SECONDS, asking.cancel)
        try:
            answer = await asking
        except asyncio.CancelledError:
            weather.cancelled += 1
        except (err.Error, LookupError):  # what a driver makes of bytes that it did not expect
            weather.crossed.append(row)
        else:
            weather.answered += 1
            if answer != row:
                weather.crossed.append(row)


class HastyDriver:
    """The control: connections that tasks share, read where the answer is awaited, and back as soon as it is cancelled.

    `gives_back`: whether a connection comes back at all when its task is cancelled.
    """

    def __init__(self, connections: Sequence[DeadlineConnection], *, gives_back: bool) -> None:
        self.idle = list(connections)
        self._gives_back = gives_back

    async def ask(self, row: UUID) -> UUID:
        connection = self.idle.pop()
        is_answered = False
        try:
            connection._execute_command(COMMAND.COM_QUERY, f"SELECT '{row}'")
            await _readable(connection)
            driver: Any = connection  # its types leave out what is its own
            driver._read_query_result()
            is_answered = True
            return UUID(str(driver._result.rows[0][0]))
        finally:
            if is_answered or self._gives_back:
                self.idle.append(connection)


async def _readable(connection: DeadlineConnection) -> None:
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(connection._sock.fileno(), ready.set)
    try:
        await ready.wait()
    finally:
        with suppress(OSError, ValueError):  # it was closed
            loop.remove_reader(connection._sock.fileno())
