"""How much of this machine's cores its host gave to others: what is measured meanwhile says nothing of us.

A core that is away for twenty milliseconds takes with it whatever waits for it. In which windows that happened the
kernel knows, so they are left out whichever way they went, and their number is printed.
"""

from __future__ import annotations

import os
from pathlib import Path

_STAT = Path("/proc/stat")
_STEAL = 8  #: Its column, after the name.


def stolen_seconds() -> float:
    """Since the machine began, of all cores together; 0 where no host takes any."""
    return int(_STAT.read_text().split("\n", 1)[0].split()[_STEAL]) / os.sysconf("SC_CLK_TCK")
