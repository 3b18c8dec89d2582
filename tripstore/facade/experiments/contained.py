"""`is_contained`: whether what was raised on a caller's thread, by a candidate or a `normalise`, ends there."""

from __future__ import annotations

import threading

#: What a signal's handler raises on the main thread, to end the process; on any other the query itself raised it.
_ENDS = (SystemExit, KeyboardInterrupt)


def is_contained(error: BaseException) -> bool:
    """What a framework raises into a thread from outside, a time limit of gevent, say, goes on as well."""
    if isinstance(error, _ENDS):
        return threading.current_thread() is not threading.main_thread()
    return isinstance(error, Exception | GeneratorExit)
