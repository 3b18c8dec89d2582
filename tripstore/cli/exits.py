"""What the exit code of a command says."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """The exit codes of every command."""

    FINE = 0  #: Done, and nothing to complain about.
    FAILED = 1  #: Differences were found, or something failed.
    USAGE = 2  #: The call, the configuration or the cell is wrong; nothing was done.
    NOT_VERIFIED = 3  #: Nothing wrong was found, but too little was looked at.
    REFUSED = 4  #: A gate refused.
    INTERRUPTED = 5  #: Ended half-way; the same command again goes on.
    LOCKED = 6  #: Another process is doing it right now.
