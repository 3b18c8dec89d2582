"""What goes wrong while the past is copied, split by what the runner does next."""


class BackfillError(Exception):
    """Base of everything a backfill raises on purpose; `hint` says what to do next."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}" if self.hint else self.message


class MustWait(BackfillError):
    """Not now: a hand-over goes on, a server does not answer. The same chunk is tried again, with growing pauses."""


class CannotCopy(BackfillError):
    """Not before somebody changed something: the job is paused, with this as its reason."""


class GaveUp(BackfillError):
    """Nothing got through for too long. The job can be resumed."""
