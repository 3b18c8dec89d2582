"""The base of what goes wrong while the past is copied."""


class BackfillError(Exception):
    """Base of everything a backfill raises on purpose; `hint` says what to do next."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}" if self.hint else self.message
