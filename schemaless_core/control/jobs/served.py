"""`ServedParts`: what one worker did of a job, as it says itself. What counts stands in the control database."""

from __future__ import annotations

from collections import Counter

from schemaless_core.control.jobs.held_part import HeldPart


class ServedParts:
    """Parts that it held, done or not, and what it counted in them."""

    def __init__(self) -> None:
        self.parts = 0
        self.counts = Counter[str]()

    def note(self, held: HeldPart) -> None:
        """It has held this one, and holds it no more."""
        self.parts += 1
        self.counts.update(held.counted)
