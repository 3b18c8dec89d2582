"""`Pruner`: has the control database pruned every few hours, by whichever worker's turn it is."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from typing import Self

from schemaless_core import metrics
from schemaless_core.control.paces import SharedPace
from schemaless_core.control.pruning.pruning import Pruning
from schemaless_core.errors import SchemalessError

logger = logging.getLogger(__name__)

#: Between two turns, of all workers together.
TURN_SECONDS = 6 * 3600.0
#: After each portion: what others want of the control database comes first.
REST_SECONDS = 0.05
#: After a turn that failed, and while another worker has its turn at most.
AGAIN_SECONDS = 600.0


class Pruner:
    """A context manager: a thread of its own, which ends after the portion at hand."""

    def __init__(self, pruning: Pruning, turns: SharedPace, rest_seconds: float = REST_SECONDS) -> None:
        self._pruning = pruning
        self._turns = turns
        self._rest_seconds = rest_seconds
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pruner", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended.set()
        self._thread.join()

    def turn(self) -> float:
        """Prune, if it is this worker's turn; how long to rest then. No caller depends on it."""
        try:
            if seconds := self._turns.take(1, 1 / TURN_SECONDS):
                return min(seconds, AGAIN_SECONDS)
            self._prune()
        except SchemalessError as error:
            extra = {"event": "control.not_pruned", "reason": error.message}
            logger.warning("what is old goes out of the control database later", extra=extra)
        return AGAIN_SECONDS

    def _prune(self) -> None:
        gone = Counter[str]()
        for what, rows in self._pruning.portions():
            gone[what] += rows
            metrics.control_pruned(what, rows)
            if self._ended.wait(self._rest_seconds):
                break
        if gone:
            logger.info("what is old went out of the control database", extra={"event": "control.pruned", **gone})

    def _run(self) -> None:
        rest_seconds = 0.0
        while not self._ended.wait(rest_seconds):
            rest_seconds = self.turn()
