"""The base of what goes wrong while two stores are compared."""


class ValidationError(Exception):
    """Base of everything a comparison raises on purpose; `hint` says what to do next.

    A difference between two stores is an answer, not an error.
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}" if self.hint else self.message
