"""Free loopback ports. A port stays its server's across restarts: the kernel must not lend it to a client."""

import random
import socket

from tripstore.local.errors import LocalServerError

# Below Linux's ephemeral range (32768…): no outgoing connection takes the port of a server that is down.
FIRST_PORT, LAST_PORT = 18_000, 32_000

#: Bound until their servers listen. None of them listens itself, so a server of ours may still take its port.
_reserved: dict[int, socket.socket] = {}


def free_port() -> int:
    """Return a port that is reserved from now on: no other process is given it, though nothing listens there yet."""
    for _ in range(500):
        port = random.SystemRandom().randrange(FIRST_PORT, LAST_PORT)
        if port not in _reserved and (reserved := _bound(port)) is not None:
            _reserved[port] = reserved
            return port
    raise LocalServerError(
        f"Found no free port between {FIRST_PORT} and {LAST_PORT}.", "Stop servers that are not used."
    )


def release(port: int) -> None:
    """Its server listens: none but that keeps others away now. This process is not given it again. Twice is fine."""
    if port in _reserved:
        _reserved[port].close()


def _bound(port: int) -> socket.socket | None:
    """Bind it, unless a process has; only then let it be shared, as servers ask for."""
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        bound.bind(("127.0.0.1", port))
    except OSError:
        bound.close()
        return None
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return bound
