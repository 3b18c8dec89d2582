"""A worker process whose trigger ends it: as one that runs out of memory, or meets a driver's fault."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from schemaless_core import Cell, Datastore
from schemaless_core.triggers import deaths
from schemaless_core.triggers.registry import trigger

GROUP = "deadly"
#: The function ends its process for this body.
POISON = "poison"


def serve(config: Mapping[str, Any], called: str, claims_max: int, threads: int) -> None:
    """Write each body down before it is used; end gracefully on SIGTERM."""
    deaths.CLAIMS_MAX = claims_max
    file = os.open(Path(called), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with Datastore.open(config) as store:

        @trigger(column="BASE", start="beginning", name=GROUP)
        def deadly(cell: Cell) -> None:
            os.write(file, f"{cell.body}\n".encode())
            if cell.body == POISON:
                os.kill(os.getpid(), signal.SIGKILL)

        worker = store.triggers.worker([deadly], threads=threads)
        signal.signal(signal.SIGTERM, lambda *_: worker.stop())
        worker.run()
