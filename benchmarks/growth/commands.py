"""`commanded`: whole commands of the user's, with a configuration of a benchmark."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tripstore.demo.commands import COMMAND

#: Differences, open gates and what is not verified have codes of their own: they are answers.
ANSWERS = frozenset({0, 1, 3, 4})


class Commands:
    """Runs them, and says how long each took from its start to its end."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def seconds(self, *words: str) -> float:
        started = time.perf_counter()
        command = [sys.executable, "-c", COMMAND, "-c", str(self._file), *words]
        ran = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        assert ran.returncode in ANSWERS, ran.stderr
        return time.perf_counter() - started


@contextmanager
def commanded(config: Mapping[str, Any]) -> Iterator[Commands]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tripstore.yaml"
        file.write_text(yaml.safe_dump(dict(config)))
        yield Commands(file)
