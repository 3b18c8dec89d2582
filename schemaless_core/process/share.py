"""`Share`: what a process does of its fleet's work itself, on a thread beside the one that watches the others."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable

from schemaless_core.process.child import Work
from schemaless_core.process.seat import Seat


class Share:
    """Begins at once. An error ends it and is told as a child's is: the others go on."""

    def __init__(self, work: Work, number: int, ended: Callable[[], object]) -> None:
        self.seat = Seat(number)
        self.is_over = False
        self.has_failed = False
        self._work = work
        self._ended = ended
        threading.Thread(target=self._do, name="share", daemon=True).start()

    def _do(self) -> None:
        try:
            self._work(self.seat)
        except SystemExit as end:
            self.has_failed = bool(end.code)
        except BaseException:  # noqa: BLE001  # told, and counted: as what ends a child
            traceback.print_exc()
            self.has_failed = True
        finally:
            self.is_over = True
            self._ended()
