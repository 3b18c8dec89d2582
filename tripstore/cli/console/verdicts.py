"""What the exit code of a command is called on the page, and the colour of that."""

from __future__ import annotations

from tripstore.cli.exits import Exit

#: What exit codes say; a command that was killed has none of these.
VERDICTS: dict[int, tuple[str, str]] = {
    Exit.FINE: ("good", "✓ Done"),
    Exit.FAILED: ("bad", "✕ Failed, or differences are left"),
    Exit.USAGE: ("bad", "✕ Refused; nothing was done"),
    Exit.NOT_VERIFIED: ("warn", "! Not everything was looked at"),
    Exit.REFUSED: ("bad", "✕ Refused"),
    Exit.INTERRUPTED: ("warn", "! Ended half-way"),
    Exit.LOCKED: ("warn", "! Another process is doing it right now"),
}


def verdict_of(code: int | None) -> tuple[str, str]:
    """The colour and the words; a negative code is a signal, None is a command that is at work."""
    if code is None:
        return "", "▸ At work"
    if code < 0:
        return "bad", f"✕ Killed by signal {-code}"
    return VERDICTS.get(code, ("bad", f"✕ Exit code {code}"))
