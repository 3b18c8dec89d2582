"""`ChangesFront`: the requests that change something: the form of an action, its plan, its beginning, and its run.

Each needs the session's cookie; what starts a command needs its seal, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import TypeVar

import msgspec

from tripstore.cli.console.access import ConsoleAccess
from tripstore.cli.console.actions import ConsoleAction, Documents
from tripstore.cli.console.answers import HTML, answer, content_of
from tripstore.cli.console.changes import ChangeAsked, ConsoleChanges
from tripstore.cli.console.hub import ConsoleHub
from tripstore.cli.console.runs import AT_WORK_MAX
from tripstore.cli.console.steps import action_html, plan_html, run_html
from tripstore.http.errors import RequestRefused
from tripstore.http.request import HttpRequest, Send

T = TypeVar("T")

_ACTIONS, _PLANS, _RUNS = "/actions/", "/plans/", "/runs/"


class ChangesFront:
    """Of a console that was started with `--allow-changes`."""

    def __init__(self, changes: ConsoleChanges, hub: ConsoleHub, access: ConsoleAccess) -> None:
        self._changes = changes
        self._hub = hub
        self._access = access
        self._plans = ThreadPoolExecutor(AT_WORK_MAX, thread_name_prefix="console-plan")

    def knows(self, path: str) -> bool:
        return path.startswith((_ACTIONS, _PLANS, _RUNS))

    async def __call__(self, request: HttpRequest, send: Send) -> None:
        path, method = request.path, request.method
        if path.startswith(_RUNS) and method == "GET":
            self._refuse_unknown(request)
            await answer(send, run_html(self._changes, self._changes.run(path[len(_RUNS) :])), HTML)
        elif path.startswith(_ACTIONS) and method == "GET":
            self._refuse_unknown(request)
            shown = self._changes.shown(self._changes.action(path[len(_ACTIONS) :]), self._documents())
            await answer(send, action_html(shown), HTML)
        elif path.startswith(_PLANS) and method == "POST":
            await self._plan(self._changes.action(path[len(_PLANS) :]), request, send)
        elif path.startswith(_ACTIONS) and method == "POST":
            await self._begin(self._changes.action(path[len(_ACTIONS) :]), request, send)
        else:
            raise RequestRefused(HTTPStatus.METHOD_NOT_ALLOWED, "The console takes another method here.", hint="")

    async def _plan(self, action: ConsoleAction, request: HttpRequest, send: Send) -> None:
        asked, documents = await self._asked(request), self._documents()
        planned = await self._in_thread(lambda: plan_html(self._changes.plan(action, asked, documents)))
        await answer(send, planned, HTML)

    async def _begin(self, action: ConsoleAction, request: HttpRequest, send: Send) -> None:
        asked, documents = await self._asked(request), self._documents()
        run = await self._in_thread(lambda: self._changes.begin(action, asked, documents, self._hub.ended))
        self._hub.begun()
        await answer(send, run_html(self._changes, run), HTML, HTTPStatus.ACCEPTED)

    async def _asked(self, request: HttpRequest) -> ChangeAsked:
        self._access.refuse_unsealed(request)
        try:
            return msgspec.json.decode(await content_of(request), type=ChangeAsked)
        except msgspec.MsgspecError:
            raise RequestRefused(HTTPStatus.BAD_REQUEST, "This is no change.", hint="Use the page.") from None

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._plans, work)

    def _documents(self) -> Documents:
        """What sections saw last: from it names are chosen."""
        return {each.name: self._shown(each.name) for each in self._hub.sections}

    def _shown(self, section: str) -> msgspec.Struct | None:
        reader = self._hub.reader(section)
        return None if reader is None else reader.shown.document

    def _refuse_unknown(self, request: HttpRequest) -> None:
        if not self._access.knows(request):
            hint = "The command printed it when it started."
            raise RequestRefused(HTTPStatus.UNAUTHORIZED, "Changes need the token.", hint=hint)
