"""How much of this machine's cores its host gave to others: what is measured meanwhile says nothing of us.

A core that is away for twenty milliseconds takes with it whatever waits for it. In which windows that happened the
kernel knows. They are left out, and their number is printed; and since a host may take more from a busy guest,
so are the figures with all of them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import click

T = TypeVar("T")
#: Of the cores: in a window with more nothing is measured.
STOLEN_MAX = 0.005
DISTURBED = f"the host took over {STOLEN_MAX:.1%} of the cores"
_STAT = Path("/proc/stat")
_STEAL = 8  #: Its column, after the name.


class Stolen:
    """From now on."""

    def __init__(self) -> None:
        self._begun, self._before = time.monotonic(), _stolen_seconds()

    @property
    def share(self) -> float:
        """Of all cores, until now; 0 where no host takes any."""
        return (_stolen_seconds() - self._before) / (time.monotonic() - self._begun) / (os.cpu_count() or 1)


def calm_or_all(found: Sequence[T], calm: Sequence[T], least: int) -> Sequence[T]:
    """The calm ones when there are enough, else all, which asks more of us; and print which."""
    disturbed = len(found) - len(calm)
    if len(calm) >= least:
        click.echo(f"  {len(calm)} rounds; in {disturbed} more {DISTURBED}: left out")
        return calm
    click.echo(f"  {len(found)} rounds; in {disturbed} of them {DISTURBED}: too many to leave out")
    return found


def _stolen_seconds() -> float:
    if not _STAT.exists():
        return 0.0
    return int(_STAT.read_text().split("\n", 1)[0].split()[_STEAL]) / os.sysconf("SC_CLK_TCK")
