"""Runs a command and says what came of it: an exit code, and for an error two sentences instead of a traceback."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

import click
import msgspec

from schemaless_core.errors import Invalid, SchemalessError
from tripstore.cli.documents import print_document
from tripstore.cli.exits import Exit
from tripstore.cli.locked import Locked
from tripstore.cli.logs import silence_logs
from tripstore.cli.options import Settings
from tripstore.cli.questions import AnswerRefused
from tripstore.cli.root import root
from tripstore.cli.traces import make_traces
from tripstore.cli.visible import visible
from tripstore.engines.backfill import BackfillError
from tripstore.engines.validation import ValidationError
from tripstore.errors import TripstoreError
from tripstore.local.errors import LocalServerError

_OURS = (SchemalessError, TripstoreError, BackfillError, ValidationError, LocalServerError)


class ComplaintOfCommand(msgspec.Struct, frozen=True):
    """What went wrong, in a JSON document."""

    kind: str
    message: str
    hint: str | None


class ErrorDocument(msgspec.Struct, frozen=True):
    """The document of a command that failed before it had another to print."""

    error: ComplaintOfCommand


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and end the process with its exit code."""
    # Python has none for a descriptor that was closed. What is printed then has no reader.
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # for as long as the process
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # as above
    sys.exit(run(list(sys.argv[1:] if arguments is None else arguments)))


def run(arguments: list[str]) -> int:
    """Run a command line and return its exit code."""
    silence_logs()
    settings = Settings()
    try:
        make_traces()
        answer = root.main(arguments, prog_name="tripstore", standalone_mode=False, obj=settings)
        return answer if isinstance(answer, int) else Exit.FINE
    except click.exceptions.NoArgsIsHelpError as help_text:
        click.echo(help_text.format_message(), err=True)
        return Exit.USAGE
    except SystemExit as end:  # commands that other packages bring may end like this
        return end.code if isinstance(end.code, int) else Exit.FAILED
    except BrokenPipeError:
        _forget_stdout()
        return Exit.FINE
    # The outermost edge: whatever comes out, a person reads it.
    except (Exception, click.Abort) as error:  # noqa: BLE001  # said, never swallowed
        if settings.is_debug:
            traceback.print_exception(error)
        return _say(error, "--json" in arguments)


def _say(error: BaseException, as_json: bool) -> Exit:
    complaint, code = _judge(error)
    if _is_full(error):
        as_json = False  # there is no place for a document
        _forget_stdout()
    click.echo(visible(f"Error: {complaint.message}"), err=True)
    if complaint.hint:
        click.echo(visible(complaint.hint), err=True)
    if as_json:
        print_document(ErrorDocument(complaint))
    return code


def _judge(error: BaseException) -> tuple[ComplaintOfCommand, Exit]:
    kind = type(error).__name__
    if isinstance(error, click.Abort):
        hint = "Run the same command again: whatever was done stays done, and it goes on from there."
        noted = _noted(error)
        return ComplaintOfCommand("Interrupted", f"Interrupted.{noted}", None if noted else hint), Exit.INTERRUPTED
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx else "tripstore"
        return ComplaintOfCommand(kind, error.format_message(), f"See `{path} --help`."), Exit.USAGE
    if isinstance(error, click.ClickException):
        return ComplaintOfCommand(kind, error.format_message(), None), Exit.FAILED
    if isinstance(error, AnswerRefused):
        return ComplaintOfCommand(kind, error.message, error.hint), Exit.REFUSED
    if isinstance(error, Locked):
        return ComplaintOfCommand(kind, error.message, error.hint), Exit.LOCKED
    if isinstance(error, _OURS):
        return ComplaintOfCommand(kind, error.message, error.hint or None), Exit.USAGE if _is_invalid(
            error
        ) else Exit.FAILED
    if _is_full(error):
        message = f"What was to be written found no place: {os.strerror(errno.ENOSPC)}."
        return ComplaintOfCommand(kind, message, "Free space where the output goes, or on the disk."), Exit.FAILED
    if isinstance(error, OSError) and error.filename is not None:
        return ComplaintOfCommand(
            kind, f"{error.filename}: {error.strerror}.", "Mend the path or its rights."
        ), Exit.FAILED
    message = f"Something unexpected happened ({kind}: {error}).{_noted(error)}"
    return ComplaintOfCommand(kind, message, "Run it again with --debug, and report what it prints."), Exit.FAILED


def _noted(error: BaseException | None) -> str:
    """What the interrupted code noted of what it had begun; a second interrupt may have come since."""
    while error is not None:
        if notes := getattr(error, "__notes__", None):
            return "".join(f" {note}" for note in notes)
        error = error.__cause__ or error.__context__
    return ""


def _is_full(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.filename is None and error.errno == errno.ENOSPC


def _is_invalid(error: BaseException) -> bool:
    return isinstance(error, Invalid)


def _forget_stdout() -> None:
    """The reader of our output has gone; Python would complain once more while it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
