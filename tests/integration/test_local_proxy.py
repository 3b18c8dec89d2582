"""A proxy makes the faults of a network, and takes them back."""

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tripstore.local.proxy import Proxy


class Echo:
    """A server that sends back what it gets."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _run(self) -> None:
        threads = []
        try:
            while True:
                connection, _ = self._listener.accept()
                threads.append(threading.Thread(target=self._echo, args=(connection,)))
                threads[-1].start()
        except OSError:
            for thread in threads:
                thread.join()

    @staticmethod
    def _echo(connection: socket.socket) -> None:
        with connection:
            try:
                while chunk := connection.recv(65_536):
                    connection.sendall(chunk)
            except ConnectionError:
                return


@pytest.fixture
def echo() -> Iterator[Echo]:
    echo = Echo()
    yield echo
    echo.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Proxy]:
    proxy = Proxy(echo.port, lambda port: f"echo://127.0.0.1:{port}")
    yield proxy
    proxy.close()


def connect(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=5.0)


def ask(client: socket.socket, question: bytes = b"hello") -> bytes:
    client.sendall(question)
    answer = b""
    while len(answer) < len(question):
        chunk = client.recv(65_536)
        if not chunk:
            raise ConnectionError("the end came early")
        answer += chunk
    return answer


def test_bytes_pass_unchanged_however_many(proxy: Proxy) -> None:
    question = bytes(range(256)) * 20_000
    with connect(proxy) as client:
        sender = threading.Thread(target=client.sendall, args=(question,))
        sender.start()
        answer = bytearray()
        while len(answer) < len(question):
            answer += client.recv(65_536)
        sender.join()

    assert bytes(answer) == question
    assert proxy.url == f"echo://127.0.0.1:{proxy.port}"


def test_the_end_of_one_side_is_told_to_the_other(proxy: Proxy) -> None:
    with connect(proxy) as client:
        client.sendall(b"last")
        client.shutdown(socket.SHUT_WR)

        assert client.recv(10) == b"last"
        assert client.recv(10) == b""


def test_a_refusing_proxy_resets_what_is_open_and_lets_no_client_in_until_healed(proxy: Proxy) -> None:
    with connect(proxy) as client:
        assert ask(client) == b"hello"

        proxy.refuse()
        with pytest.raises(ConnectionResetError):
            client.recv(10)
    with pytest.raises(ConnectionRefusedError):
        connect(proxy).close()
    proxy.heal()

    with connect(proxy) as client:
        assert ask(client) == b"hello"


def test_a_cut_resets_only_what_is_open(proxy: Proxy) -> None:
    with connect(proxy) as client:
        assert ask(client) == b"hello"
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            client.recv(10)

    with connect(proxy) as client:
        assert ask(client) == b"hello"


def test_a_delay_holds_bytes_back_in_both_directions(proxy: Proxy) -> None:
    with connect(proxy) as client:
        proxy.delay(0.1)
        began = time.monotonic()
        assert ask(client) == b"hello"
        assert time.monotonic() - began >= 0.2
        proxy.heal()
        began = time.monotonic()

        assert ask(client) == b"hello"
        assert time.monotonic() - began < 0.1


def test_a_swallowing_proxy_accepts_and_says_nothing_until_healed(proxy: Proxy) -> None:
    with connect(proxy) as before:
        assert ask(before) == b"hello"
        proxy.swallow()
        with connect(proxy) as during:
            for client in (before, during):
                client.settimeout(0.2)
                with pytest.raises(TimeoutError):
                    ask(client)
            proxy.heal()
            for client in (before, during):
                with pytest.raises(ConnectionResetError):
                    ask(client)

    with connect(proxy) as client:
        assert ask(client) == b"hello"


def test_what_is_sent_arrives_where_answers_alone_are_swallowed() -> None:
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        proxy = Proxy(listener.getsockname()[1], str)
        try:
            with connect(proxy) as client:
                upstream, _address = listener.accept()
                with upstream:
                    proxy.swallow_answers()
                    client.settimeout(0.2)
                    client.sendall(b"hello")
                    heard.append(upstream.recv(65_536))
                    upstream.sendall(b"welcome")
                    with pytest.raises(TimeoutError):
                        client.recv(65_536)
                    proxy.heal()
                    with pytest.raises(ConnectionResetError):
                        client.recv(65_536)
        finally:
            proxy.close()

    assert heard == [b"hello"]


def test_no_server_behind_the_proxy_is_a_reset(echo: Echo) -> None:
    gone = socket.create_server(("127.0.0.1", 0))
    port = gone.getsockname()[1]
    gone.close()
    proxy = Proxy(port, str)
    try:
        with pytest.raises(ConnectionError), connect(proxy) as client:
            ask(client)
    finally:
        proxy.close()
