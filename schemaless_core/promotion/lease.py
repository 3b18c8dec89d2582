"""The lease of a primary, step by step: as long as it lasts, the primary takes writes.

Any number of processes may extend it at once, and each may be stopped at any step. Decision 63 has the sums.
"""

from __future__ import annotations

from enum import Enum

from schemaless_core.promotion.ports import LeasePorts, Unheard
from schemaless_core.steps import Step, Steps

CLOCK = Step("lease.clock", "read the clock of the primary")
ASK = Step("lease.ask", "ask a voter whether this primary may go on")
EXTEND = Step("lease.extend", "extend the lease from that clock")


class Extension(Enum):
    """What became of it."""

    EXTENDED = "extended"
    SILENT = "silent"  #: The primary does not answer.
    DENIED = "denied"  #: A promotion wants another primary.
    ALONE = "alone"  #: No voter answers.


def extend(ports: LeasePorts) -> Steps[Extension]:
    """Extend it, if one voter allows that. The clock is read first: the lease ends before any wait that knows of it."""
    for voter in ports.voters.names:
        yield CLOCK  # anew: a voter that is silent takes time
        clock = ports.leases.clock()
        if isinstance(clock, Unheard):
            return Extension.SILENT
        yield ASK
        is_allowed = ports.voters.allows(voter, clock.number)
        if isinstance(is_allowed, Unheard):
            continue
        if not is_allowed:
            return Extension.DENIED
        yield EXTEND
        answer = ports.leases.extend(clock)
        return Extension.SILENT if isinstance(answer, Unheard) else Extension.EXTENDED
    return Extension.ALONE
