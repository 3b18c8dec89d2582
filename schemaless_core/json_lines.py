"""`JsonLines`: our log, or any, as one JSON object a line, for what collects logs."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

_KNOWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class JsonLines(logging.Formatter):
    """A formatter: `event` and the other facts of a record stand beside its sentence, each under its own key.

    `speaker`: which of several workers of a process writes.
    """

    def __init__(self, speaker: str = "") -> None:
        super().__init__()
        self._speaker = speaker

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            "process": record.process,
            "message": record.getMessage(),
        }
        if self._speaker:
            line["speaker"] = self._speaker
        line |= {key: value for key, value in facts_of(record).items() if key not in line}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        try:
            return json.dumps(line, default=str, allow_nan=False)
        except (TypeError, ValueError):  # a number or a key that JSON has not: no line is lost for it
            return json.dumps(
                {key: value if isinstance(value, str | int) else str(value) for key, value in line.items()}
            )


def facts_of(record: logging.LogRecord) -> dict[str, Any]:
    """What the code attached to a record."""
    return {key: value for key, value in vars(record).items() if key not in _KNOWN}
