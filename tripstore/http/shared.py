"""`SharedAnswer`: one question at a time, whose answer goes to all that ask meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class SharedAnswer(Generic[T]):
    """The health check needs no token: any number of callers cost the servers one question."""

    def __init__(self, ask: Callable[[], Awaitable[T]]) -> None:
        self._ask = ask
        self._asking: asyncio.Future[T] | None = None

    async def get(self) -> T:
        """Ask, or wait for the answer of the question that is on its way."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(self._ask())
        return await asyncio.shield(self._asking)  # a caller that goes away takes it from none of the others
