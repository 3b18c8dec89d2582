"""SIGINT at random moments of a first second: no traceback of ours, and an exit code that says what happened."""

from __future__ import annotations

import random
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.acceptance.conftest import Shell
from tests.acceptance.forked import TRIPSTORE
from tests.scale import scaled

COMMANDS = ("status", "schema apply", "doctor", "index status", "triggers status", "--help")
#: Done before the signal came; interrupted and resumable; ended by the signal before Python handles any.
FINE = {0, 5, -signal.SIGINT}
SECOND = 1.0
_IN_MAIN = re.compile(r'cli/__init__\.py", line \d+, in main')


def interrupted(shell: Shell, command: str, seconds: float) -> subprocess.CompletedProcess[str]:
    process = subprocess.Popen(
        [TRIPSTORE, *command.split()],
        cwd=shell.folder,
        env=shell.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    time.sleep(seconds)  # the moment is what is tried
    process.send_signal(signal.SIGINT)
    out, said = process.communicate(timeout=60)
    return subprocess.CompletedProcess(command, process.returncode, out, said)


def is_before_us(said: str) -> bool:
    """Whether Python was still loading itself, or pip's script what it imports: no `main()` had begun."""
    return "Traceback" in said and not _IN_MAIN.search(said)


def test_interrupts_at_random_moments_are_quiet(store: Shell, record_property: Callable[[str, object], None]) -> None:
    chance, counts = random.Random(35), Counter[str]()
    for n in range(max(12, scaled(200))):
        command = COMMANDS[n % len(COMMANDS)]
        ran = interrupted(store, command, chance.random() * SECOND)
        if is_before_us(ran.stderr):
            counts["before main()"] += 1
            continue
        assert "Traceback" not in ran.stderr, (command, ran.stderr)
        assert ran.returncode in FINE, (command, ran)
        counts[f"exit code {ran.returncode}"] += 1

    record_property("counts", ", ".join(f"{count} × {kind}" for kind, count in sorted(counts.items())))
    assert store.call("status").code == 0, "what was interrupted does no harm"


def test_control_a_plain_program_prints_a_traceback(tmp_path: Path) -> None:
    program = tmp_path / "plain.py"
    # It is interrupted while it sleeps.
    program.write_text("import time\nprint('begun', flush=True)\ntime.sleep(30)\n")
    process = subprocess.Popen(["python3", str(program)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGINT)
    assert "Traceback" in process.communicate(timeout=30)[1]
