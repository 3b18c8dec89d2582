"""`Shadowing`: hands sampled reads to the shadow, with the two stores that hold them against each other.

The other store is asked over connections of its own, so that a slow one takes none from callers (I10).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from schemaless_core.store import CellStore
from tripstore.engines.validation.experiment.trial import Trial
from tripstore.engines.validation.reads import Read
from tripstore.engines.validation.shadow.sampling import SamplingSettings
from tripstore.engines.validation.shadow.shadow import Shadow
from tripstore.engines.validation.verdicts import Reason
from tripstore.facade.flags import Comparing
from tripstore.facade.known import Sight
from tripstore.handover.authority import Backend


class Shadowing:
    """Of one process."""

    def __init__(
        self,
        shadow: Shadow,
        configured: SamplingSettings,
        owner_of: Callable[[Backend, int], CellStore],
        mirror_of: Callable[[Backend], CellStore],
    ) -> None:
        self._shadow = shadow
        self._configured = configured
        self._owner_of = owner_of
        self._mirror_of = mirror_of
        self._comparing = Comparing()

    def takes(self, sight: Sight, operation: str) -> bool:
        """Whether this read, in a phase that asks the other store, is to be offered."""
        self.learn(sight)
        return self._shadow.takes(operation)

    def learn(self, sight: Sight) -> None:
        """Take the share that the flags say from now on."""
        comparing = sight.flags.comparing
        if comparing is not self._comparing:  # they are read anew all the time
            self._learn(comparing)

    @property
    def takes_trial(self) -> Callable[[str], bool]:
        """Whether a call of an experiment is to be compared, by its operation. Every call waits for that."""
        return self._shadow.takes

    def offer(self, sight: Sight, read: Read, answer: Any, *, is_of_mirror: bool = False) -> None:
        """A sampled read and what its caller got. Raises nothing."""
        backend, epoch = sight.authority.backend, sight.authority.epoch
        authority, read = self._owner_of(backend, epoch), replace(read, epoch=epoch)
        if sight.flags.comparing.is_against_itself:
            other = self._mirror_of(backend) if is_of_mirror else authority
            self._shadow.offer(replace(read, is_noise=True), answer, other, other)
            return
        self._shadow.offer(read, answer, authority, self._mirror_of(backend), is_of_other=is_of_mirror)

    def offer_trial(
        self, trial: Trial, answer: Any, control: CellStore, candidate: CellStore, *, is_of_candidate: bool
    ) -> None:
        """A sampled call of an experiment: the control is its authority. Raises nothing."""
        self._shadow.offer(trial, answer, control, candidate, is_of_other=is_of_candidate)

    def decline(self, trial: Trial, reason: Reason) -> None:
        """A sampled call of an experiment that cannot be compared."""
        self._shadow.decline(trial, reason)

    def _learn(self, comparing: Comparing) -> None:
        known, self._comparing = self._comparing, comparing
        if comparing == known:
            return
        settings = self._configured
        if comparing.share is not None:
            settings = replace(settings, share=comparing.share)
        if comparing.per_second is not None:
            settings = replace(settings, per_second=comparing.per_second)
        self._shadow.resample(settings)
