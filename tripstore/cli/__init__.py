"""The command `tripstore`: a folder or a file per group. The top of everything: no other package imports it."""

from __future__ import annotations

import gc
import sys

# Loading `typing` takes longer than all else before main(), and an interrupt is told as one only in there.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

__all__ = ["main"]

INTERRUPTED = 5


def main() -> NoReturn:
    """Run the command line, and end the process with its exit code; an interrupt while it is loaded is one, too."""
    gc.disable()  # to look for garbage among what is imported takes an eighth of the time; `root` begins with it
    try:
        from tripstore.cli.run import main as run

        run()
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)  # noqa: T201  # what prints otherwise may not be loaded
        sys.exit(INTERRUPTED)
