"""Processes that create a datastore, and die at a failpoint when a test says so.

A fork server loads the package once: loading it takes longer than creating a few shards.
"""

from __future__ import annotations

from collections.abc import Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from schemaless_core import Datastore
from schemaless_core.failpoints import use_folder
from tests.forking import FORK_SERVER


def start(config: Mapping[str, Any], failpoints: Path) -> BaseProcess:
    """Start a process that creates a datastore."""
    process = FORK_SERVER.Process(target=_create, args=(dict(config), failpoints))
    process.start()
    return process


def finish(process: BaseProcess) -> int:
    """Wait for its end; minus the signal's number when it was killed."""
    process.join(60)
    assert process.exitcode is not None
    return process.exitcode


def _create(config: dict[str, Any], failpoints: Path) -> None:
    use_folder(failpoints)
    with Datastore.open(config) as datastore:
        datastore.create_schema()
