"""`CutoverSettings`: from which numbers on a hand-over is safe."""

from __future__ import annotations

from dataclasses import dataclass

from schemaless_core.errors import InvalidConfig


@dataclass(frozen=True, slots=True)
class CutoverSettings:
    """The section `cutover:` of the configuration."""

    lag_seconds_max: float = 1.0  #: How old the oldest change that the mirror lacks may be.
    lag_changes_max: int = 500  #: How many changes the mirror may lack; the switcher delivers them itself.
    writer_seconds_max: float = (
        1.0  #: Who has written mapped tables and stays in his transaction for longer is waited for.
    )
    rehearsed_cells_min: int = 100  #: Cells that the reverse mirror must have compared.
    mismatch_rate_max: float = 0.001  #: The bound of the mismatch rate of each operation class must lie below.
    confidence: float = 0.95  #: How sure the bound is.
    comparisons_min: int = 1000  #: Of each operation class so many are compared, whatever the bound says.
    evidence_hours: int = 168  #: Comparisons, diffs and verifications that are older say nothing.

    def __post_init__(self) -> None:
        for name in ("mismatch_rate_max", "confidence"):
            value = getattr(self, name)
            if not 0 < value < 1:
                raise InvalidConfig(f"cutover.{name}", f"{value} is not between 0 and 1", hint="0.95 is 95 %.")
