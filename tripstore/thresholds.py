"""`CutoverSettings`: from which numbers on a hand-over is safe."""

from __future__ import annotations

from dataclasses import dataclass

from schemaless_core.errors import InvalidConfig
from tripstore.engines.validation.reads import is_comparable


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
    not_compared_share_max: float = 0.01  #: Of the sampled reads of each operation class, so many may lack a verdict.
    #: Operation classes of which the operator accepts reads that one store cannot answer.
    incomparable: tuple[str, ...] = ()
    evidence_hours: int = 168  #: Comparisons, diffs and verifications that are older say nothing.

    def __post_init__(self) -> None:
        for name in ("mismatch_rate_max", "confidence"):
            value = getattr(self, name)
            if not 0 < value < 1:
                raise InvalidConfig(f"cutover.{name}", f"{value} is not between 0 and 1", hint="0.95 is 95 %.")
        if not 0 < self.not_compared_share_max <= 1:
            problem = f"{self.not_compared_share_max} is no share"
            raise InvalidConfig("cutover.not_compared_share_max", problem, hint="0.01 is 1 %, 1 is any.")
        for operation in self.incomparable:
            if not is_comparable(operation):
                problem = f"{operation!r} is no operation that is compared"
                raise InvalidConfig("cutover.incomparable", problem, hint="Name them as the gate does: [get_history].")
