"""`ConsoleFront`: the ASGI application of the console: the page, its files, its sections, and what is new of them.

What changes something is answered by `ChangesFront`.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus

import msgspec

from schemaless_core.told import Told
from tripstore.cli.console.access import ConsoleAccess
from tripstore.cli.console.answers import HEADERS, HTML, JSON, TEXT, answer, content_of
from tripstore.cli.console.changes import ConsoleChanges
from tripstore.cli.console.changes_front import ChangesFront
from tripstore.cli.console.hub import Beginning, ConsoleHub, SectionNews
from tripstore.cli.console.mismatches import ListedMismatch, MismatchesView, look_at_both
from tripstore.cli.console.pages import asset, login_html, mismatch_html, page_html, section_html
from tripstore.cli.console.reader import SectionReader
from tripstore.http.errors import RequestRefused
from tripstore.http.request import HttpRequest, Receive, Scope, Send

_SECTIONS = "/sections/"
_MISMATCHES = "/mismatches/"
#: Both stores have their own deadlines; a browser waits no longer.
LOOK_SECONDS = 10.0
#: Looks that people ask for, at the same time.
LOOKS_MAX = 4
#: A page that takes nothing for so long is no page.
SEND_SECONDS = 30.0


class TokenGiven(msgspec.Struct, frozen=True):
    """What a browser sends once."""

    token: str


class ConsoleFront:
    """What it answers is in memory, so no server can make a page wait; the two bodies of a mismatch are asked for."""

    def __init__(self, hub: ConsoleHub, access: ConsoleAccess, changes: ConsoleChanges | None = None) -> None:
        self._hub = hub
        self._access = access
        self._changes = changes
        self._changing = None if changes is None else ChangesFront(changes, hub, access)
        self._looks = ThreadPoolExecutor(LOOKS_MAX, thread_name_prefix="console-look")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """What a server of ASGI calls for each request."""
        request = HttpRequest(scope, receive)
        try:
            request.refuse_doubles()
            self._access.refuse_stranger(request)
            if request.path == "/events" and request.method == "GET":
                self._refuse_unknown(request)
                await self._stream(receive, send)
            else:
                await self._answer(request, send)
        except RequestRefused as error:
            await answer(send, str(error).encode(), TEXT, HTTPStatus(error.status))
        except Told as error:
            await answer(send, str(error).encode(), TEXT, HTTPStatus.BAD_REQUEST)

    async def _answer(self, request: HttpRequest, send: Send) -> None:
        path = request.path
        if request.method == "POST" and path == "/session":
            await self._begin_session(request, send)
        elif self._changing is not None and self._changing.knows(path):
            await self._changing(request, send)
        elif request.method not in ("GET", "HEAD"):
            raise RequestRefused(HTTPStatus.METHOD_NOT_ALLOWED, "The console takes GET here.", hint="")
        elif (found := asset(path)) is not None:
            await answer(send, *found)
        elif path == "/":
            await answer(send, self._page(request), HTML)
        elif path.startswith(_MISMATCHES):
            await self._show_mismatch(request, path[len(_MISMATCHES) :], send)
        elif path.startswith(_SECTIONS) and (reader := self._hub.reader(path[len(_SECTIONS) :])) is not None:
            self._refuse_unknown(request)
            await self._show_section(request, reader, send)
        else:
            raise RequestRefused(HTTPStatus.NOT_FOUND, "The console has nothing there.", hint="Open /.")

    def _page(self, request: HttpRequest) -> bytes:
        if not self._access.may_read(request):
            return login_html()
        return page_html(self._hub, self._access.knows(request), self._access.seal(request), self._changes)

    def _refuse_unknown(self, request: HttpRequest) -> None:
        if not self._access.may_read(request):
            raise RequestRefused(HTTPStatus.UNAUTHORIZED, "Give the token first.", hint="Open /.")

    async def _show_section(self, request: HttpRequest, reader: SectionReader, send: Send) -> None:
        """Which version the text is, and of when, goes with it."""
        shown = reader.shown
        said = [(b"tripstore-version", self._hub.version(shown).encode())]
        said += [] if shown.at is None else [(b"tripstore-at", shown.at.isoformat().encode())]
        await answer(send, section_html(reader, _page_number(request)), HTML, headers=said)

    async def _show_mismatch(self, request: HttpRequest, mismatch_id: str, send: Send) -> None:
        """Bodies are shown to a browser that has given the token."""
        if not self._access.knows(request):
            hint = "The command printed it when it started."
            raise RequestRefused(HTTPStatus.UNAUTHORIZED, "Bodies are shown for the token.", hint=hint)
        reader = self._hub.reader("mismatches")
        view = reader.shown.document if reader else None
        listed = view.find(mismatch_id) if isinstance(view, MismatchesView) else None
        if listed is None:
            raise RequestRefused(
                HTTPStatus.NOT_FOUND, "This mismatch is not listed any more.", hint="Look at the list."
            )
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                content = await asyncio.get_running_loop().run_in_executor(self._looks, self._opened, listed)
        except TimeoutError:
            hint = "Look at the servers, then try again."
            raise RequestRefused(HTTPStatus.GATEWAY_TIMEOUT, "The stores did not answer in time.", hint=hint) from None
        await answer(send, content, HTML)

    def _opened(self, listed: ListedMismatch) -> bytes:
        """In a thread: it asks both stores, and bodies may be large."""
        return mismatch_html(look_at_both(self._hub.stores, listed))

    async def _begin_session(self, request: HttpRequest, send: Send) -> None:
        self._access.refuse_forged(request)
        try:
            given = msgspec.json.decode(await content_of(request), type=TokenGiven)
        except msgspec.MsgspecError:
            raise RequestRefused(HTTPStatus.BAD_REQUEST, "This is no token.", hint="Use the form.") from None
        begun = self._access.begin_session(given.token, self._access.session(request))
        said = msgspec.json.encode({"seal": begun.seal})
        await answer(send, said, JSON, headers=[(b"set-cookie", begun.cookie)])

    async def _stream(self, receive: Receive, send: Send) -> None:
        """Server-sent events, until the page or the console ends."""
        headers = [(b"content-type", b"text/event-stream"), *HEADERS]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        gone = asyncio.ensure_future(_until_gone(receive))
        listening = self._hub.listen()
        try:
            async for news in listening:
                if gone.done():
                    break
                async with asyncio.timeout(SEND_SECONDS):
                    await send({"type": "http.response.body", "body": event_of(news), "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            raise ConnectionAbortedError("a page took no events") from None
        finally:
            gone.cancel()
            await listening.aclose()


def event_of(news: Beginning | SectionNews | None) -> bytes:
    """One event. JSON has no line feeds, so a text of a server cannot begin another one."""
    if news is None:
        return b"event: beat\ndata: {}\n\n"
    name = b"all" if isinstance(news, Beginning) else b"section"
    return b"event: " + name + b"\ndata: " + msgspec.json.encode(news) + b"\n\n"


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _page_number(request: HttpRequest) -> int:
    given = request.query().get("page", ["1"])[0]
    return int(given) if given.isascii() and given.isdigit() and len(given) < 8 else 1
