"""A TCP proxy in front of a server, for the faults of a network: refused, slow, silent, cut.

One thread in the owner's process moves the bytes; the public methods only change the mode and wake it up.
"""

import contextlib
import selectors
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from enum import Enum

from tripstore.local.ports import free_port, release

CHUNK_BYTES = 65_536
BUFFERED_CHUNKS = 64
RESET = struct.pack("ii", 1, 0)  # SO_LINGER of zero seconds: close() sends RST


class Mode(Enum):
    """How the network behaves."""

    FORWARD = "bytes pass, after the delay"
    REFUSE = "no server listens"
    SWALLOW = "connections are accepted and bytes vanish"
    SWALLOW_ANSWERS = "what clients send arrives, and what the server answers vanishes"


class Proxy:
    """A loopback port that leads to a server, until told otherwise. Methods may be called from any thread."""

    def __init__(self, target_port: int, url_at: Callable[[int], str]) -> None:
        self.port = free_port()
        self.url = url_at(self.port)
        self._target_port = target_port
        self._mode = Mode.FORWARD
        self._delay_seconds = 0.0
        self._closing = False
        self._links: set[_Link] = set()
        self._selector = selectors.DefaultSelector()
        self._lock = threading.RLock()
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self._listener: socket.socket | None = None
        self._listen()
        release(self.port)
        self._thread = threading.Thread(target=self._run, name=f"proxy-{self.port}", daemon=True)
        self._thread.start()

    def refuse(self) -> None:
        """Refuse new connections and reset the existing ones."""
        self._set(Mode.REFUSE)

    def delay(self, seconds: float) -> None:
        """Hold each chunk back this long, in both directions; zero ends it."""
        with self._lock:
            self._delay_seconds = seconds

    def swallow(self) -> None:
        """Accept connections and let every byte vanish, in both directions, also on existing connections."""
        self._set(Mode.SWALLOW)

    def swallow_answers(self) -> None:
        """Let the server hear its clients, and every byte of its answers vanish."""
        self._set(Mode.SWALLOW_ANSWERS)

    def cut(self) -> None:
        """Reset the existing connections; new ones are welcome."""
        with self._lock:
            for link in list(self._links):
                self._drop(link)
            self._wake()

    def lead_to(self, port: int) -> None:
        """Lead to another server from now on, as an address does after a failover; reset existing connections."""
        with self._lock:
            self._target_port = port
            self.cut()

    def heal(self) -> None:
        """Forward again, without delay. Connections that lost bytes are reset: they could not go on."""
        with self._lock:
            self._delay_seconds = 0.0
            for link in [link for link in self._links if link.lossy]:
                self._drop(link)
            self._set(Mode.FORWARD)

    def close(self) -> None:
        """Reset all connections and end the thread. Twice is fine."""
        with self._lock:
            self._closing = True
            self._wake()
        self._thread.join()

    def _set(self, mode: Mode) -> None:
        with self._lock:
            self._mode = mode
            if mode is Mode.REFUSE:
                self._stop_listening()
                self.cut()
            else:
                self._listen()
            self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._wake_write.send(b"!")

    def _listen(self) -> None:
        if self._listener is None:
            self._listener = socket.create_server(("127.0.0.1", self.port), backlog=128)
            self._listener.setblocking(False)
            self._selector.register(self._listener, selectors.EVENT_READ)

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._selector.unregister(self._listener)
            self._listener.close()
            self._listener = None

    def _run(self) -> None:
        while True:
            ready = self._selector.select(self._seconds_until_due())
            with self._lock:
                if self._closing:
                    return self._end()
                for key, _ in ready:
                    self._serve(key.fileobj)
                self._deliver()

    def _serve(self, ready: object) -> None:
        if ready is self._wake_read:
            with contextlib.suppress(BlockingIOError):
                self._wake_read.recv(CHUNK_BYTES)
        elif ready is self._listener:
            self._accept()
        else:
            pipe = next((pipe for link in self._links for pipe in link.pipes if pipe.source is ready), None)
            if pipe is not None:  # not one that was dropped in this very round
                self._receive(pipe)

    def _accept(self) -> None:
        assert self._listener is not None
        with contextlib.suppress(BlockingIOError, ConnectionAbortedError):
            client, _ = self._listener.accept()
            link = _Link(client, self._target_port)
            self._links.add(link)
            for pipe in link.pipes:
                pipe.lossy = self._loses(pipe)
                self._selector.register(pipe.source, selectors.EVENT_READ)

    def _loses(self, pipe: "_Pipe") -> bool:
        """Whether bytes of this direction vanish; once one has, no later one may arrive."""
        is_answer = pipe is pipe.link.pipes[1]
        return pipe.lossy or self._mode is Mode.SWALLOW or (self._mode is Mode.SWALLOW_ANSWERS and is_answer)

    def _receive(self, pipe: "_Pipe") -> None:
        try:
            chunk = pipe.source.recv(CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            self._drop(pipe.link)
            return
        if self._loses(pipe):
            pipe.lossy = True
            if not chunk:
                self._selector.unregister(pipe.source)
                pipe.ended = True
            return
        pipe.push(chunk, time.monotonic() + self._delay_seconds)
        if pipe.ended or pipe.full:
            self._selector.unregister(pipe.source)

    def _deliver(self) -> None:
        now = time.monotonic()
        for link in list(self._links):
            try:
                for pipe in link.pipes:
                    if pipe.waiting and self._loses(pipe):
                        pipe.waiting.clear()
                        pipe.lossy = True
                    was_full = pipe.full
                    pipe.deliver(now)
                    if was_full and not pipe.full and not pipe.ended:
                        self._selector.register(pipe.source, selectors.EVENT_READ)
            except OSError:
                self._drop(link)
                continue
            if link.finished:
                self._drop(link)

    def _seconds_until_due(self) -> float | None:
        with self._lock:
            due = [pipe.waiting[0][0] for link in self._links for pipe in link.pipes if pipe.waiting]
        # Something due but not sent waits for a slow reader; look again soon.
        return max(0.001, min(due) - time.monotonic()) if due else None

    def _drop(self, link: "_Link") -> None:
        self._links.discard(link)
        for pipe in link.pipes:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(pipe.source)
            pipe.source.close()

    def _end(self) -> None:
        self._stop_listening()
        for link in list(self._links):
            self._drop(link)
        self._selector.close()
        self._wake_read.close()
        self._wake_write.close()


class _Link:
    """One client's connection and its counterpart at the server: two pipes."""

    def __init__(self, client: socket.socket, target_port: int) -> None:
        upstream = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        for end in (client, upstream):
            end.setblocking(False)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        upstream.connect_ex(("127.0.0.1", target_port))  # a refusal shows at the first recv
        self.pipes = (_Pipe(self, client, upstream), _Pipe(self, upstream, client))

    @property
    def lossy(self) -> bool:
        """Return whether bytes of a direction have vanished."""
        return any(pipe.lossy for pipe in self.pipes)

    @property
    def finished(self) -> bool:
        """Return whether both directions have ended and been told."""
        return all(pipe.ended and not pipe.waiting for pipe in self.pipes)


class _Pipe:
    """One direction: what was read and is not yet due or not yet taken."""

    def __init__(self, link: _Link, source: socket.socket, target: socket.socket) -> None:
        self.link, self.source, self.target = link, source, target
        self.waiting: deque[tuple[float, bytes]] = deque()
        self.ended = False
        self.lossy = False

    @property
    def full(self) -> bool:
        """Return whether to stop reading until the other side has taken something."""
        return len(self.waiting) >= BUFFERED_CHUNKS

    def push(self, chunk: bytes, due: float) -> None:
        """Queue a chunk; an empty one is the end."""
        self.waiting.append((due, chunk))
        self.ended = not chunk

    def deliver(self, now: float) -> None:
        """Send what is due, as far as the target takes it."""
        while self.waiting and self.waiting[0][0] <= now:
            due, chunk = self.waiting.popleft()
            if not chunk:
                self.target.shutdown(socket.SHUT_WR)
                return
            try:
                sent = self.target.send(chunk)
            except BlockingIOError:
                sent = 0
            if sent < len(chunk):
                self.waiting.appendleft((due, chunk[sent:]))
                return
