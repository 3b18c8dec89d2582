"""Our log on stderr: silent unless asked for, since a command says itself what came of it."""

from __future__ import annotations

import logging
import os
import sys

from schemaless_core.json_lines import JsonLines, facts_of

ENVIRONMENT_VARIABLE = "TRIPSTORE_LOGS"
OURS = ("schemaless_core", "tripstore")


class _Line(logging.Formatter):
    """A sentence, and behind it what the code attached to it."""

    def format(self, record: logging.LogRecord) -> str:
        return " ".join([super().format(record), *(f"{key}={value}" for key, value in facts_of(record).items())])


def silence_logs() -> None:
    """Give our loggers a handler that writes nothing, else Python prints their warnings."""
    for name in OURS:
        logging.getLogger(name).addHandler(logging.NullHandler())


def show_logs(verbosity: int, speaker: str = "") -> None:
    """Write our log to stderr: what went wrong, with 1 also what went well, with 2 everything.

    Where the environment says TRIPSTORE_LOGS=json, each line is a JSON object.
    """
    handler = logging.StreamHandler(sys.stderr)
    who = f"{speaker} " if speaker else ""
    is_json = os.environ.get(ENVIRONMENT_VARIABLE) == "json"
    handler.setFormatter(
        JsonLines(speaker) if is_json else _Line(f"%(asctime)s {who}%(levelname)s %(name)s: %(message)s")
    )
    for name in OURS:
        logger = logging.getLogger(name)
        logger.setLevel((logging.WARNING, logging.INFO, logging.DEBUG)[min(verbosity, 2)])
        logger.handlers = [handler]
