"""Whether a process can serve calls now, as a load balancer asks every few seconds: one short question each."""

from __future__ import annotations

from typing import NamedTuple

from schemaless_core.deadline import Deadline
from schemaless_core.errors import SchemalessError
from schemaless_core.servers.routing import Router

#: So long all that is asked may take, unless the caller says otherwise.
HEALTH_SECONDS = 0.5


class Health(NamedTuple):
    """What answered. A process that is not ready would fail most of its calls."""

    is_ready: bool
    #: Clusters whose primaries answered; of a legacy store that answers callers `postgres` instead.
    answering: tuple[str, ...]
    silent: tuple[str, ...]


def clusters_health(router: Router, seconds: float) -> Health:
    """Ready while one cluster answers: calls of the others are the same at every process, and buffers take the puts."""
    deadline = Deadline(seconds)
    answers = router.ask_all(lambda node: node.heads([0], deadline))
    silent = tuple(sorted(name for name, answer in answers.items() if isinstance(answer, SchemalessError)))
    answering = tuple(sorted(answers.keys() - set(silent)))
    return Health(bool(answering), answering, silent)
