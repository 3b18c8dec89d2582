"""Workers as commands in processes of their own, with settings that do not make a test wait as production would."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.acceptance.conftest import Shell

WAIT_SECONDS = 30.0

QUICK = """
triggers:
  lease_seconds: 0.9
  checkpoint_seconds: 0.05
  first_pause_seconds: 0.01
  retry_seconds: 600
  halt_after: 2
"""


def quicken(shell: Shell) -> None:
    """Give a folder's configuration short leases, and few cells that may be parked."""
    config = shell.folder / "tripstore.yaml"
    config.write_text(config.read_text() + QUICK)


@contextmanager
def serving(
    shell: Shell, *arguments: str, environment: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """`tripstore triggers run`; whatever happens, it does not outlive the block."""
    process = shell.start("triggers", "run", *arguments, environment=environment)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        process.wait(WAIT_SECONDS)
