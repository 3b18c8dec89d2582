"""The base of the facade's errors. Whatever leaves `tripstore` on purpose is one of these or one of the core's."""


class TripstoreError(Exception):
    """Base of everything the facade raises on purpose; `hint` says what to do next."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}" if self.hint else self.message
