"""`HeldPart`: a part of a job in the hands of one worker, and its lease, which a thread renews while work goes on.

What is done between two saves may take longer than a lease: without the thread two workers would take such a part from
each other for ever, and neither would save anything.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from schemaless_core.cell.canonical import Json
from schemaless_core.control.jobs.records import Finding, JobState, Part
from schemaless_core.errors import SchemalessError, Unavailable

logger = logging.getLogger(__name__)

#: However short a lease is.
RENEW_SECONDS_MIN = 0.01


class PartStore(Protocol):
    """What this asks of `Jobs`."""

    def save(
        self,
        part: Part,
        worker: str,
        *,
        checkpoint: Json,
        counts: Mapping[str, int],
        findings: Sequence[Finding] = (),
        solved: Collection[int] = (),
        is_done: bool,
        lease_seconds: float,
    ) -> Part: ...

    def release(self, part: Part, worker: str) -> None: ...


class HeldPart:
    """A part and the thread that claimed it. A thread that lost its part gets `PartLost` when it saves."""

    def __init__(self, jobs: PartStore, part: Part, worker: str, lease_seconds: float) -> None:
        #: As it was saved last.
        self.part = part
        self.is_done = False
        self._jobs = jobs
        self._worker = worker
        self.lease_seconds = lease_seconds
        #: What was counted by the saves of this one.
        self.counted = Counter[str]()
        #: Whether another worker has it, as the thread that renews the lease has heard.
        self.is_lost = False
        #: Whether the last renewal had no answer: the fence is unknown until it is repeated.
        self._is_unsure = False
        #: What is counted between two saves, and what the last renewal counts of that.
        self._meanwhile: Callable[[], Mapping[str, int]] = dict
        self._renewed: Mapping[str, int] = {}

    @property
    def may_go_on(self) -> bool:
        """Whether the part is not done yet and the job is running."""
        return not self.is_done and self.part.state is JobState.RUNNING

    @contextmanager
    def kept_alive(self, meanwhile: Callable[[], Mapping[str, int]] = dict) -> Iterator[None]:
        """Renew the lease from a thread until the block ends. Nothing else may be asked of this within the block.

        An unexpected error of that thread is raised when the block is over. `meanwhile`: says what is to be counted
        since it was asked last, for work that is not saved on its way.
        """
        self._meanwhile = meanwhile
        ended, failures = threading.Event(), list[Exception]()
        thread = threading.Thread(target=self._keep, args=(ended, failures), name="lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            self._meanwhile = dict
        if failures:
            raise failures[0]

    def save(
        self,
        checkpoint: Json,
        counts: Mapping[str, int],
        findings: Sequence[Finding] = (),
        solved: Collection[int] = (),
        *,
        is_done: bool,
    ) -> None:
        """Move it forward. After an `Unavailable` it is repeated as it was, and counts once."""
        if self._is_unsure:
            self.renew()
        self.part = self._jobs.save(
            self.part,
            self._worker,
            checkpoint=checkpoint,
            counts=counts,
            findings=findings,
            solved=solved,
            is_done=is_done,
            lease_seconds=self.lease_seconds,
        )
        self.is_done = is_done
        self.counted.update(counts)

    def renew(self) -> None:
        """Keep it for another lease. After an `Unavailable` it is to be repeated; `save` and `release` do."""
        part, self._is_unsure = self.part, True
        counts = self._renewed = self._renewed or self._meanwhile()
        self.part = self._jobs.save(
            part,
            self._worker,
            checkpoint=part.checkpoint,
            counts=counts,
            is_done=False,
            lease_seconds=self.lease_seconds,
        )
        self._is_unsure, self._renewed = False, {}
        self.counted.update(counts)

    def release(self) -> None:
        """Give it back, unless it is done. One that cannot be given back comes free when its lease is over."""
        if self.is_done:
            return
        if self._is_unsure:
            self.renew()
        self._jobs.release(self.part, self._worker)

    def give_back(self) -> None:
        """Release it if the control database answers. For a worker that ends, most likely by a worse error."""
        try:
            self.release()
        except SchemalessError as error:  # its lease ends by itself
            extra = {"event": "jobs.release_failed", "job": self.part.job, "reason": error.message}
            logger.warning("a part of a job could not be given back", extra=extra)

    def _keep(self, ended: threading.Event, failures: list[Exception]) -> None:
        while not ended.wait(max(self.lease_seconds / 3, RENEW_SECONDS_MIN)):
            try:
                self.renew()
            except Unavailable:
                continue  # the next one repeats it
            except SchemalessError:
                self.is_lost = True
                return
            except Exception as error:  # noqa: BLE001  # it is raised where it is heard
                failures.append(error)
                return
