"""What goes wrong with servers on this machine, and what the person at the terminal can do about it."""


class LocalServerError(Exception):
    """A server here could not be started, stopped or disturbed; `hint` says what to do next."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".rstrip()
