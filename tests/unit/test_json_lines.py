"""Our log as JSON lines."""

from __future__ import annotations

import json
import logging
import os
import sys
from uuid import UUID

import pytest

from schemaless_core.json_lines import JsonLines
from tripstore.cli.logs import show_logs

ROW = UUID(int=7)


def record(**extra: object) -> logging.LogRecord:
    return logging.getLogger("tripstore.test").makeRecord(
        "tripstore.test", logging.WARNING, __file__, 1, "a sentence of %s", ("ours",), None, extra=extra
    )


def test_facts_stand_beside_the_sentence() -> None:
    line = json.loads(JsonLines().format(record(event="test.done", row_key=ROW, cells=3, who="für Ä")))

    assert line.pop("at").endswith("+00:00")
    assert line.pop("process") == os.getpid()
    assert line == {
        "level": "WARNING",
        "logger": "tripstore.test",
        "message": "a sentence of ours",
        "event": "test.done",
        "row_key": str(ROW),
        "cells": 3,
        "who": "für Ä",
    }


def test_a_fact_takes_the_place_of_no_other() -> None:
    assert json.loads(JsonLines().format(record(level="mine")))["level"] == "WARNING"


def test_what_json_has_not_is_text() -> None:
    line = json.loads(JsonLines("two of 4").format(record(share=float("nan"), places={(1, 2): "a"}, cells=3)))

    assert (line["share"], line["places"], line["cells"], line["speaker"]) == ("nan", "{(1, 2): 'a'}", 3, "two of 4")


def test_a_traceback_is_one_line_too() -> None:
    made = record()
    try:
        raise ValueError("no")
    except ValueError:
        made.exc_info = sys.exc_info()

    text = JsonLines().format(made)

    assert "\n" not in text
    assert json.loads(text)["traceback"].endswith("ValueError: no")


def test_commands_write_them_where_the_environment_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The control: without it a line is a sentence."""
    loggers = [logging.getLogger(name) for name in ("tripstore", "schemaless_core")]
    before = [(each, each.level, each.handlers) for each in loggers]
    try:
        for setting in ("json", ""):
            monkeypatch.setenv("TRIPSTORE_LOGS", setting)
            show_logs(0)
            logging.getLogger("tripstore.test").warning("told", extra={"event": "test.told"})
        as_json, as_text = capsys.readouterr().err.splitlines()
    finally:
        for each, level, handlers in before:
            each.setLevel(level)
            each.handlers = handlers

    assert json.loads(as_json)["event"] == "test.told"
    assert as_text.endswith("WARNING tripstore.test: told event=test.told")
