"""One question at a time, for all that ask."""

from __future__ import annotations

import asyncio

from tripstore.http.shared import SharedAnswer


def test_all_that_ask_meanwhile_share_one_answer_and_the_next_one_asks_again() -> None:
    async def ask() -> None:
        may_end, asked = asyncio.Event(), list[int]()

        async def question() -> int:
            asked.append(1)
            await may_end.wait()
            return len(asked)

        shared = SharedAnswer(question)
        first = [asyncio.ensure_future(shared.get()) for _ in range(20)]
        await asyncio.sleep(0)
        first[0].cancel()  # a caller that goes away takes the answer from none of the others
        await asyncio.sleep(0)
        may_end.set()

        assert await asyncio.gather(*first[1:]) == [1] * 19
        assert await shared.get() == 2

    asyncio.run(ask())
