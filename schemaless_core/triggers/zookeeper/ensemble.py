"""`Ensemble`: the ZooKeeper of a datastore, as calls that end in time. It knows paths and bytes, not what they mean.

No session matters: nothing here is ephemeral and nothing is watched. So a session that expires, or a client that is
replaced by another one, loses nothing. Only `coordination` imports this, when it is needed: kazoo is an extra.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.handlers.utils import AsyncResult
from kazoo.protocol.states import ZnodeStat
from kazoo.retry import KazooRetry
from kazoo.security import make_digest_acl

from schemaless_core.errors import CoordinatorUnavailable
from schemaless_core.urls import ZooKeeperUrl

T = TypeVar("T")

#: kazoo warns at each attempt to connect. Our callers say once that the coordinator is silent.
_QUIET = logging.getLogger(f"{__name__}.kazoo")
_QUIET.setLevel(logging.CRITICAL)

#: Between two attempts to connect, at most: kazoo's own pauses grow to a minute.
RETRY_SECONDS_MAX = 0.5
#: How long the end of a client is waited for: it may be in the middle of an attempt to connect.
END_SECONDS = 1.0
_RIGHTS = "Name the user that made it in triggers.coordinator, or choose another path there."


class Znode(NamedTuple):
    """What stands under a path."""

    data: bytes
    version: int  #: Grows by one with each writing; 0 when it was made.
    mark: tuple[int, ...]  #: Another one for another content, also where the server has lost its data meanwhile.


class NodeWrite(NamedTuple):
    """One part of what is written together: holds only while the node is at this version."""

    path: str
    version: int
    data: bytes | None  #: What the node gets; None: it is removed.


class _Link(NamedTuple):
    """A client, and an event that is set while it has a connection."""

    client: KazooClient
    live: threading.Event


class Ensemble:
    """Connects at the first call. Safe to use from several threads."""

    def __init__(self, url: ZooKeeperUrl, datastore: str, session_seconds: float, call_seconds: float) -> None:
        self._url = url
        #: Below which all of it is.
        self.root = f"{url.path}/{datastore}"
        self._session_seconds = session_seconds
        self._call_seconds = call_seconds
        self._lock = threading.Lock()
        self._link: _Link | None = None
        self._seen_at = 0.0

    @property
    def name(self) -> str:
        """Where it is, without a password."""
        return str(self._url)

    def find(self, path: str) -> Znode | None:
        """Return a node, or None."""
        try:
            data, stat = self._read(lambda client: client.get_async(self.root + path))
        except NoNodeError:
            return None
        return Znode(data, stat.version, _mark(stat))

    def find_mark(self, path: str) -> tuple[int, ...] | None:
        """Return a node's mark without its content, or None."""
        stat = self._read(lambda client: client.exists_async(self.root + path))
        return None if stat is None else _mark(stat)

    def names(self, path: str) -> list[str]:
        """Return the names below a path in order; none where the path is not."""
        try:
            names = self._read(lambda client: client.get_children_async(self.root + path))
        except NoNodeError:
            return []
        return sorted(names)

    def create(self, path: str, data: bytes) -> bool:
        """Make a node and those above it. False: it is there."""
        try:
            self._ask(lambda client: client.create_async(self.root + path, data, makepath=True))
        except NodeExistsError:
            return False
        return True

    def put(self, path: str, data: bytes, version: int = -1) -> int | None:
        """Write a node that is at a version, -1: at any; return the new one. None: it is not, or is not there."""
        try:
            return self._ask(lambda client: client.set_async(self.root + path, data, version)).version
        except (BadVersionError, NoNodeError):
            return None

    def remove(self, path: str) -> None:
        """Remove a node that has none below it; idempotent."""
        with suppress(NoNodeError):
            self._ask(lambda client: client.delete_async(self.root + path))

    def write_together(self, path: str, version: int, writes: Sequence[NodeWrite]) -> bool:
        """Do all of these if a node is at a version and each of theirs is, else nothing. Whether they were done."""

        def send(client: KazooClient) -> AsyncResult[list[object]]:
            request = client.transaction()
            request.check(self.root + path, version)
            for write in writes:
                if write.data is None:
                    request.delete(self.root + write.path, write.version)
                else:
                    request.set_data(self.root + write.path, write.data, write.version)
            return request.commit_async()

        return not any(isinstance(answer, Exception) for answer in self._ask(send))

    def close(self) -> None:
        """End the connection. A later call connects anew."""
        with self._lock:
            link, self._link = self._link, None
        if link is not None:
            _end(link.client).join(END_SECONDS)

    def after_fork(self) -> None:
        """Forget the parent's connection, whose threads are not in this process."""
        self._lock = threading.Lock()
        self._link = None

    def _read(self, call: Callable[[KazooClient], AsyncResult[T]]) -> T:
        """Ask once more where a connection ended under the question, which says nothing of the next one."""
        try:
            return self._ask(call)
        except CoordinatorUnavailable as error:
            if not isinstance(error.__cause__, ConnectionLoss):
                raise
        return self._ask(call)

    def _ask(self, call: Callable[[KazooClient], AsyncResult[T]]) -> T:
        """Send a call and wait for its answer. What says nothing of a node leaves as `CoordinatorUnavailable`."""
        client = self._connected()
        try:
            return call(client).get(timeout=self._call_seconds)
        except (NoNodeError, NodeExistsError, BadVersionError):
            raise
        except KazooTimeoutError:
            raise self._silence(f"no answer within {self._call_seconds:g} s") from None
        except (NoAuthError, AuthFailedError):
            raise self._silence(f"this user has no right to {self.root}", _RIGHTS) from None
        except KazooException as error:
            raise self._silence(f"the call failed: {type(error).__name__}") from error

    def _connected(self) -> KazooClient:
        """Return a client with a connection, and wait for one as long as a call may take."""
        give_up_at = time.monotonic() + self._call_seconds
        while True:
            link = self._link_of_today()
            look_again_at = min(give_up_at, self._seen_at + self._session_seconds)
            if link.live.wait(max(0.0, look_again_at - time.monotonic())):
                self._seen_at = time.monotonic()
                return link.client
            if time.monotonic() >= give_up_at:
                raise self._silence(f"no connection within {self._call_seconds:g} s")

    def _link_of_today(self) -> _Link:
        """Return the client, or another one where it is given up."""
        with self._lock:
            if self._link is not None and self._is_given_up(self._link):
                _end(self._link.client)
                self._link = None
            if self._link is None:
                self._link = self._new_link()
                self._seen_at = time.monotonic()
            return self._link

    def _is_given_up(self, link: _Link) -> bool:
        """Whether a client has been without a connection for as long as its session lasts.

        It tells each server the newest transaction that it saw. One that has lost its data refuses such a client for
        ever; it takes a new one.
        """
        return not link.live.is_set() and time.monotonic() - self._seen_at >= self._session_seconds

    def _new_link(self) -> _Link:
        url = self._url
        client = KazooClient(
            url.hosts,
            self._session_seconds,
            auth_data=[("digest", f"{url.user}:{url.password}")] if url.user else [],
            default_acl=[make_digest_acl(url.user, url.password, all=True)] if url.user else None,
            connection_retry=KazooRetry(-1, max_delay=RETRY_SECONDS_MAX),
            logger=_QUIET,
        )
        return _Link(client, client.start_async())

    def _silence(self, reason: str, hint: str | None = None) -> CoordinatorUnavailable:
        return CoordinatorUnavailable(self.name, reason, hint=hint)


def _end(client: KazooClient) -> threading.Thread:
    """End a client on a thread of its own: one that is connecting to a silent server takes seconds."""

    def end() -> None:
        try:
            client.stop()
            client.close()
        except Exception:  # noqa: BLE001  # kazoo raises Exception itself, and nothing depends on how a client ended
            _QUIET.debug("a connection did not end", exc_info=True)

    thread = threading.Thread(target=end, name="zookeeper-end", daemon=True)
    thread.start()
    return thread


def _mark(stat: ZnodeStat) -> tuple[int, ...]:
    return stat.czxid, stat.mzxid, stat.ctime, stat.mtime, stat.version
