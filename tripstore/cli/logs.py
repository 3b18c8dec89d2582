"""Our log on stderr: silent unless asked for, since a command says itself what came of it."""

from __future__ import annotations

import logging
import sys

OURS = ("schemaless_core", "tripstore")

_KNOWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class _Line(logging.Formatter):
    """A sentence, and behind it what the code attached to it."""

    def format(self, record: logging.LogRecord) -> str:
        extra = {key: value for key, value in vars(record).items() if key not in _KNOWN}
        return " ".join([super().format(record), *(f"{key}={value}" for key, value in extra.items())])


def silence_logs() -> None:
    """Give our loggers a handler that writes nothing, else Python prints their warnings."""
    for name in OURS:
        logging.getLogger(name).addHandler(logging.NullHandler())


def show_logs(verbosity: int, speaker: str = "") -> None:
    """Write our log to stderr: what went wrong, with 1 also what went well, with 2 everything."""
    handler = logging.StreamHandler(sys.stderr)
    who = f"{speaker} " if speaker else ""
    handler.setFormatter(_Line(f"%(asctime)s {who}%(levelname)s %(name)s: %(message)s"))
    for name in OURS:
        logger = logging.getLogger(name)
        logger.setLevel((logging.WARNING, logging.INFO, logging.DEBUG)[min(verbosity, 2)])
        logger.handlers = [handler]
