"""Named failpoints: one line in the code that a test in another process can turn into an accident.

Free when off: `reach` returns after one look at a module variable. `TRIPSTORE_FAILPOINTS=<folder>` turns them on;
from then on a test arms a point by writing the file `<folder>/<name>`, whose words are the action:

    raise | kill | stop | wait      with an optional `after=N`: the first N times nothing happens

The file is renamed to `<name>.hit` by the one process that met it, so an armed point fires once and the test sees
that it did. A process that waits goes on when `<name>.go` appears.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from pathlib import Path

ENVIRONMENT_VARIABLE = "TRIPSTORE_FAILPOINTS"


class FailpointReached(Exception):
    """Raised where a test armed a failpoint with `raise`; nothing of ours catches it."""


_folder: Path | None = Path(os.environ[ENVIRONMENT_VARIABLE]) if ENVIRONMENT_VARIABLE in os.environ else None
_visits: Counter[str] = Counter()


def reach(name: str) -> None:
    """Mark a place where the process may be made to fail."""
    if _folder is not None:
        _look(_folder, name)


def use_folder(folder: Path | None) -> None:
    """Turn failpoints on or off inside this process."""
    global _folder
    _folder = folder
    _visits.clear()


def _look(folder: Path, name: str) -> None:
    armed = folder / name
    try:
        action, *options = armed.read_text().split()
    except FileNotFoundError:
        return
    except ValueError:  # the test is still writing it
        return
    _visits[name] += 1
    if _visits[name] <= _after(options):
        return
    try:
        armed.rename(folder / f"{name}.hit")
    except FileNotFoundError:  # another process was first
        return
    _visits[name] = 0
    _act(folder, name, action)


def _after(options: list[str]) -> int:
    for option in options:
        if option.startswith("after="):
            return int(option.removeprefix("after="))
    return 0


def _act(folder: Path, name: str, action: str) -> None:
    if action == "raise":
        raise FailpointReached(name)
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif action == "wait":
        while not (folder / f"{name}.go").exists():
            time.sleep(0.002)
    else:
        raise ValueError(f"failpoint {name}: unknown action {action!r}; use raise, kill, stop or wait")
