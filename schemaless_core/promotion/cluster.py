"""`ClusterServers`: the servers of one cluster in the hands of one promotion, by their names in the configuration."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from schemaless_core.config import ReplicationConfig
from schemaless_core.deadline import Deadline
from schemaless_core.engine.primacy import Candidate, EpochRun, Lead, NotNow, Opening, Reached, ReplicationLogin
from schemaless_core.errors import InvalidConfig, NodeUnavailable, SchemalessError
from schemaless_core.promotion.ports import SILENT, Silent
from schemaless_core.servers.clusters import Cluster
from schemaless_core.urls import NodeUrl

T = TypeVar("T")

logger = logging.getLogger(__name__)

#: To take a server another promotion may have to lose it first; anything else is a matter of moments.
FENCE_SECONDS = 45.0
CALL_SECONDS = 10.0
#: Servers end sessions that are idle for 20 seconds.
STAY_SECONDS = 5.0


class ClusterServers:
    """A `ServersPort`; a context manager that ends its sessions."""

    def __init__(
        self,
        cluster: Cluster,
        urls: Sequence[NodeUrl],
        login: ReplicationConfig,
        epochs: Callable[[], list[EpochRun]],
        promises: Callable[[], dict[str, int] | None],
    ) -> None:
        """`promises`: what a voter has to know as it begins to lead; None: it is to be none, for it has no lease."""
        self._urls = {str(url): url for url in urls}
        self._candidates: dict[str, Candidate] = {node.node.name: node.node.candidate() for node in cluster.nodes}
        self._used_at = dict.fromkeys(self._candidates, 0.0)
        self._login = login
        self._epochs = epochs
        self._promises = promises
        #: Why a server did not answer, the last time that it did not.
        self.silences: dict[str, NodeUnavailable] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._candidates)

    def fence(self, server: str, number: int, led: bool) -> Lead | Silent:
        return self._ask(server, lambda its: its.fence(number, Deadline(FENCE_SECONDS), led=led))

    def reached(self, server: str) -> Reached | Silent:
        return self._ask(server, lambda its: its.reached(Deadline(CALL_SECONDS)))

    def has(self, server: str, reached: Reached) -> bool | Silent:
        return self._ask(server, lambda its: its.has(reached, Deadline(CALL_SECONDS)))

    def cut_off(self, server: str) -> bool | Silent:
        return self._ask(server, lambda its: its.cut_off(Deadline(CALL_SECONDS)))

    def open(self, server: str, number: int, opening: Opening | None) -> Lead | NotNow | Silent:
        epochs, promises = self._epochs(), self._promises()
        return self._ask(server, lambda its: its.open(number, opening, epochs, promises, Deadline(FENCE_SECONDS)))

    def follow(self, server: str, other: str) -> None | Silent:
        url, login = self._urls[other], self.replication_login()
        return self._ask(server, lambda its: its.follow(url.host, url.port, login, Deadline(CALL_SECONDS)))

    def identity(self, server: str) -> int:
        return self._candidates[server].identity(Deadline(CALL_SECONDS))

    def replication_login(self) -> ReplicationLogin:
        if self._login.user is None:
            hint = "Write replication: {user: …, password: …}: as whom replicas log in at a primary."
            raise InvalidConfig("replication.user", "is missing", hint=hint)
        return ReplicationLogin(self._login.user, self._login.password or "")

    def _ask(self, server: str, verb: Callable[[Candidate], T]) -> T | Silent:
        self._stay(server)
        try:
            return verb(self._candidates[server])
        except NodeUnavailable as error:
            self.silences[server] = error
            extra = {"event": "promotion.silent", "server": server, "reason": error.message}
            logger.warning("a server does not do what a promotion asks", extra=extra)
            return SILENT
        finally:
            self._used_at[server] = time.monotonic()

    def _stay(self, server: str) -> None:
        """Say a word to those servers that have heard none for a while."""
        now = time.monotonic()
        for other, used_at in self._used_at.items():
            if other != server and used_at and now - used_at > STAY_SECONDS:
                self._used_at[other] = now
                with suppress(SchemalessError):
                    self._candidates[other].stay(Deadline(1.0))

    def __enter__(self) -> ClusterServers:
        return self

    def __exit__(self, *_error: object) -> None:
        for candidate in self._candidates.values():
            candidate.close()
