"""Free loopback ports. A port stays its server's across restarts: the kernel must not lend it to a client."""

import random
import socket

from tripstore.local.errors import LocalServerError

# Below Linux's ephemeral range (32768…): no outgoing connection takes the port of a server that is down.
FIRST_PORT, LAST_PORT = 18_000, 32_000

_given: set[int] = set()


def free_port() -> int:
    """Return a port nobody listens on and that this process has not been given before."""
    for _ in range(500):
        port = random.SystemRandom().randrange(FIRST_PORT, LAST_PORT)
        if port not in _given and _is_free(port):
            _given.add(port)
            return port
    raise LocalServerError(
        f"Found no free port between {FIRST_PORT} and {LAST_PORT}.", "Stop servers that nobody uses."
    )


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
