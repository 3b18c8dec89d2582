"""Clients that never finish, and requests that two readers could read differently: by bytes on a socket."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from uuid import uuid4

import pytest

from tests.chaos.actors import wait_until
from tests.http_clients import JSON, Served
from tests.integration.http.tokens import TOKENS, WRITER
from tripstore.http.connection import HEAD_BYTES_MAX, FrontConnection
from tripstore.http.settings import HttpLimits, HttpSettings
from tripstore.store import TripStore

HEADERS = f"Host: 127.0.0.1\r\nAuthorization: Bearer {WRITER}\r\nContent-Type: application/json\r\n"
SECONDS = 0.15
#: More than the kernel keeps of what one end has sent and the other has not read.
ALL_BUFFERS_BYTES = 2**26


@pytest.fixture(scope="module")
def hasty(store: TripStore) -> Iterator[Served]:
    """A front without patience."""
    served = Served(store, HttpSettings(HttpLimits(request_seconds=SECONDS), TOKENS))
    served.client.headers["Authorization"] = f"Bearer {WRITER}"
    yield served
    served.close()


def connected(front: Served) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", int(front.url.rsplit(":", 1)[1])))
    sock.settimeout(20)
    return sock


def told(front: Served, *parts: bytes) -> bytes:
    """All that a connection brings until the front ends it."""
    with closing(connected(front)) as sock:
        for part in parts:
            sock.sendall(part)
        answer = b""
        try:
            while part := sock.recv(65536):
                answer += part
        except ConnectionResetError:
            pass  # it ended with bytes of ours unread
        return answer


def put(more: str, content: bytes) -> bytes:
    return f"PUT /v1/cells/{uuid4()}/BASE/1 HTTP/1.1\r\n{HEADERS}{more}\r\n".encode() + content


@pytest.mark.parametrize(
    "request_bytes",
    [
        put("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n", b"1\r\n7\r\n0\r\n\r\n"),
        put("Content-Length: 1\r\nContent-Length: 2\r\n", b"12"),
        put("Content-Length: +1\r\n", b"1"),
        put("Content-Length : 1\r\n", b"1"),
        put("Transfer-Encoding: xchunked\r\n", b"1\r\n7\r\n0\r\n\r\n"),
        put("Transfer-Encoding: chunked\r\n", b"1\n7\n0\n\n"),
        put("Content-Length: 1\n", b"1"),
    ],
)
def test_a_request_that_has_two_readings_is_refused(hasty: Served, request_bytes: bytes) -> None:
    assert told(hasty, request_bytes).startswith(b"HTTP/1.1 400 ")


def test_a_client_that_begins_no_request_or_none_that_ends_is_left(hasty: Served) -> None:
    assert told(hasty) == b""
    assert told(hasty, b"GET /health HTT") == b""
    assert told(hasty, b"\r\n" * 10) == b""


def test_content_that_does_not_come_is_answered_and_then_left(hasty: Served) -> None:
    answer = told(hasty, put("Content-Length: 9\r\n", b"1"))

    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"outcome":"not_stored"' in answer


def test_a_head_has_a_bound(hasty: Served) -> None:
    begun = b"GET /health HTTP/1.1\r\nX: "

    assert told(hasty, begun + b"x" * 2 * HEAD_BYTES_MAX).startswith(b"HTTP/1.1 431 ")


def test_too_much_content_is_refused_by_its_length(hasty: Served) -> None:
    answer = told(hasty, put(f"Content-Length: {2**40}\r\n", b"1"))

    assert answer.startswith(b"HTTP/1.1 413 ")


def test_a_client_that_takes_nothing_of_its_answer_is_left(hasty: Served) -> None:
    row, big = uuid4(), b'"' + b"x" * 900_000 + b'"'
    for ref_key in range(12):
        assert hasty.client.put(f"/v1/cells/{row}/BIG/{ref_key}", content=big, headers=JSON).status_code == 201
    asked = f"GET /v1/history/{row}/BIG HTTP/1.1\r\n{HEADERS}Connection: close\r\n\r\n".encode()

    with closing(connected(hasty)) as sock:
        sock.sendall(asked)
        assert sock.recv(1) == b"H"
        hasty.wait_for_connections(1)  # the client that put has one
        taken = sum(len(part) for part in iter(lambda: sock.recv(2**20), b""))

    assert taken < 12 * len(big)


def test_a_client_that_asks_on_and_takes_no_answer_is_left(hasty: Served) -> None:
    """An answer that waits for it to read held the connection for ever, and it takes no token."""
    with closing(connected(hasty)) as sock:
        with suppress(ConnectionError):  # it may end before all is sent
            sock.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 2_000)
        hasty.wait_for_connections(1)  # the fixture's client may have one
        assert len(hasty.client.get("/openapi.json").content) * 2_000 > ALL_BUFFERS_BYTES


def test_a_connection_that_asks_for_http2_is_served_by_http1(hasty: Served) -> None:
    upgrade = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAA\r\n"
    last = f"GET /health HTTP/1.1\r\n{HEADERS}Connection: close\r\n\r\n".encode()

    with closing(connected(hasty)) as sock:
        sock.sendall(put(upgrade + "Content-Length: 1\r\n", b"1"))
        first = sock.recv(65536)
        sock.sendall(last)
        second = b"".join(iter(lambda: sock.recv(65536), b""))

    assert first.startswith(b"HTTP/1.1 201 ")
    assert b'"is_ready":true' in second


@pytest.fixture
def arrived(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Waits until fronts were handed so many bytes: what is sent then comes apart from them."""
    taken = [0]
    take = FrontConnection.data_received

    def counted(self: FrontConnection, data: bytes) -> None:
        take(self, data)
        taken[0] += len(data)

    monkeypatch.setattr(FrontConnection, "data_received", counted)
    return lambda count: wait_until(f"{count} bytes arrived", lambda: taken[0] >= count)


@pytest.mark.parametrize("cut", [b"Up", b"Upgrade:", b"Upgrade: 0", b"Upgrade: 00", b"Upgrade: 00\r"])
def test_a_wish_for_another_protocol_that_comes_in_two_parts_is_no_part_of_another_header(
    front: Served, arrived: Callable[[int], None], cut: bytes
) -> None:
    """What was left of it would be the end of the length before it, and another request the content."""
    upgrade = "Connection: Upgrade\r\nContent-Length: 1\r\nUpgrade: 00\r\n"
    sent = put(upgrade, b"1")
    first, second = sent[: sent.index(cut) + len(cut)], sent[sent.index(cut) + len(cut) :]

    with closing(connected(front)) as sock:
        sock.sendall(first)
        arrived(len(first))
        sock.sendall(second)
        assert sock.recv(65536).startswith(b"HTTP/1.1 201 ")


CHUNKED = "Transfer-Encoding: chunked\r\n"


def test_a_trailer_is_no_header(front: Served) -> None:
    """A proxy that looks at the headers does not look at it."""
    nameless = f"PUT /v1/cells/{uuid4()}/BASE/1 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    trailer = f"1\r\n7\r\n0\r\nAuthorization: Bearer {WRITER}\r\n\r\n"

    answer = told(front, f"{nameless}{CHUNKED}Connection: close\r\n\r\n{trailer}".encode())

    assert answer.startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize("token", [WRITER, "another"], ids=["known", "unknown"])
def test_trailers_have_a_bound(front: Served, token: str) -> None:
    """Also those of a request that was refused already."""
    begun = put(CHUNKED, b"1\r\n7\r\n0\r\n").replace(WRITER.encode(), token.encode())

    with closing(connected(front)) as sock:
        sock.sendall(begun)
        for _ in range(64):
            with suppress(ConnectionError):  # it has ended already
                sock.sendall(b"X: " + b"x" * HEAD_BYTES_MAX + b"\r\n")
        with suppress(ConnectionError):
            sock.sendall(b"\r\n")
        front.wait_for_connections(1)  # the client of the fixture may have one
        answer = b""
        with suppress(ConnectionError):
            answer = sock.recv(65536)
    assert not answer.startswith(b"HTTP/1.1 201 ")


@pytest.mark.parametrize("second", [b"GET / HTTP/1.1\r\nX: " + b"x" * 2 * HEAD_BYTES_MAX, b"none of HTTP\r\n\r\n"])
def test_what_is_refused_does_not_answer_the_request_before(
    front: Served, gate: threading.Event, arrived: Callable[[int], None], second: bytes
) -> None:
    """The put goes on, and is stored; its client would read that it was refused."""
    first = put("Content-Length: 1\r\n", b"1")

    with closing(connected(front)) as sock:
        sock.sendall(first)
        arrived(len(first))
        with suppress(ConnectionError):
            sock.sendall(second)
        answer = b""
        with suppress(ConnectionError):
            answer = sock.recv(65536)
    gate.set()
    assert answer == b""
