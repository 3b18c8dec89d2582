"""Driver errors become ours, here and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg2

from schemaless_core.errors import InvalidServer, SchemalessError, SchemaMissing, StaleEpoch
from tripstore.backends.postgres.errors import LegacyRefused, LegacyUnavailable, SessionRefused, Unrepresentable
from tripstore.backends.postgres.sqlstates import BELOW_TOMBSTONE, GATE_SHUT, NO_PARENT
from tripstore.backends.postgres.wire.way_in import way_in

SERVER = "Postgres"
_REPEAT = "Repeat the call; when it stays so, look at the server's load and log."

#: The server is there but does not serve now.
_BUSY = {
    "25006": "it is read-only",
    "25P03": "the transaction was idle for too long",
    "53100": "its disk is full",
    "53200": "it is out of memory",
    "53300": "it has too many connections",
    "57014": "the statement took too long",
    "57P01": "it is shutting down",
    "57P02": "it crashed",
    "57P03": "it is starting up",
}
#: What libpq says of a certificate that it cannot or may not believe: to repeat the call cannot help.
_UNVERIFIED = ("certificate verify failed", "root certificate file", "does not match host name")
_TRUST = "Name in sslrootcert the authority that signed Postgres' certificate, and the host as the certificate does."
_WAYS_OUT = {
    "25006": "Name the primary in legacy.postgres.",
    "53100": "Free space on the server's disk.",
    "53300": "Raise max_connections, or lower the size of the pool.",
}
#: A value that the table's columns or constraints do not take.
_VALUES = {
    "22001": "a text is too long for its column",
    "22003": "a number is out of its column's range",
    "22007": "a date or time has a form that Postgres does not read",
    "22008": "a date or time is out of range",
    "22021": "a text holds bytes that the database's encoding does not have",
    "22023": "a value is not allowed there",
    "22026": "a bit string has another length than its column",
    "22P02": "a value has a form that its column does not read",
    "22P05": "a character is missing in the database's encoding",
    "22P03": "a value has a form that its column does not read",
    "2200G": "a value has another type than its column",
    "2200N": "a text is no XML",
    "23502": "a column without default must have a value",
    "23503": "it points to a row that is not there",
    "23514": "a CHECK constraint refuses it",
    "42804": "a value has another type than its column",
}
#: All of this class are about values.
_OF_VALUES = "22"
_DENIED = {
    "28000": "it does not let this user in",
    "28P01": "the password or user is wrong",
    "3D000": "the database does not exist",
    "42501": "the user lacks a privilege",
}
HIDDEN = "row-level security"
SEE_ALL = "Give the role of legacy.postgres BYPASSRLS: a row that it does not see would be told as missing."
_MISSING = frozenset({"3F000", "42703", "42704", "42883", "42P01"})
_AGAIN = frozenset({"40001", "40P01"})
_UNIQUE = "23505"
_LOCK_TIMEOUT = "55P03"
#: What capture's functions raise: its rules, and the gate.
_OWN_RULES = "TS"


class Again(Exception):
    """What was read is out of date: the verb starts anew. Never leaves the backend."""

    def __init__(self, reason: str, constraint: str | None = None, *, pause_seconds: float = 0.0) -> None:
        super().__init__(reason)
        self.reason = reason
        #: At least so long others are to be left in peace.
        self.pause_seconds = pause_seconds
        #: The unique constraint that another row met.
        self.constraint = constraint


class LockTimeout(LegacyUnavailable):
    """Another transaction held a lock for too long."""


class ConnectionLost(LegacyUnavailable):
    """The connection broke, or was ended by the server. A pooled one may have been dead all along."""


class ValueRefused(Unrepresentable):
    """A column or constraint of the company's refuses a value; a caller that knows the layout finds the field."""

    def __init__(
        self, reason: str, table: str | None, column: str | None, constraint: str | None, *, is_dangling: bool = False
    ) -> None:
        super().__init__("", reason)
        self.table = table
        self.column = column
        self.constraint = constraint
        #: Whether it points to a row that is not there.
        self.is_dangling = is_dangling


def translate(error: psycopg2.Error, in_the_way: str | None) -> SchemalessError | Again:
    """Our error for a driver's; `in_the_way` names the session that was waited for, where that is known."""
    code, text = error.pgcode, _first_line(error)
    if code in _AGAIN or code == BELOW_TOMBSTONE:
        return Again(text)
    if code == _UNIQUE:
        return Again(text, error.diag.constraint_name)
    if code == _LOCK_TIMEOUT:
        who = f", held by {in_the_way}" if in_the_way else ""
        return LockTimeout(f"{SERVER} did not give a lock in time{who}.", hint="End that transaction, or repeat.")
    if code in _VALUES or (code or "").startswith(_OF_VALUES):
        diag, reason = error.diag, f"{_VALUES.get(code or '', 'a value is not taken')} ({text})"
        place = (diag.table_name, diag.column_name, diag.constraint_name)
        return ValueRefused(reason, *place, is_dangling=code == NO_PARENT)
    if code in _DENIED and HIDDEN in text:
        return InvalidServer(SERVER, f"row security would hide rows from us ({text})", hint=SEE_ALL)
    if code in _DENIED:
        return InvalidServer(SERVER, f"{_DENIED[code]} ({text})", hint="Check legacy.postgres and the user's grants.")
    if code in _MISSING:
        return SchemaMissing(f"{SERVER} lacks something ({text}).", hint="Run `tripstore schema apply`.")
    return _of_the_server(error, code, text)


def _of_the_server(error: psycopg2.Error, code: str | None, text: str) -> SchemalessError:
    if code in ("57P01", "57P02", "25P03") or (code or "").startswith("08"):
        return ConnectionLost(f"{SERVER} ended the connection ({text}).", hint=_REPEAT)
    if code in _BUSY:
        hint = _WAYS_OUT.get(code, _REPEAT)
        return LegacyUnavailable(f"{SERVER} is unavailable: {_BUSY[code]} ({text}).", hint=hint)
    if code == GATE_SHUT:
        return not_the_authority(text)
    if code is not None and (code.startswith((_OWN_RULES, "P0")) or code in ("23P01", "23000", "23001", "44000")):
        return LegacyRefused(f"{SERVER} refuses the write: {text}.", hint=error.diag.message_hint or None)
    if code is None and isinstance(error, psycopg2.OperationalError | psycopg2.InterfaceError | psycopg2.DatabaseError):
        return ConnectionLost(f"The connection to {SERVER} broke ({text}).", hint=_REPEAT)
    if isinstance(error, psycopg2.OperationalError):
        return LegacyUnavailable(f"{SERVER} is unavailable: {code}: {text}.", hint=_REPEAT)
    return SchemalessError(f"{SERVER} refused a statement ({code}: {text}).", hint="This is a bug of ours; report it.")


@contextmanager
def translating() -> Iterator[None]:
    """Whatever the driver raises within leaves as ours; what lost against others may be repeated as a whole."""
    try:
        yield
    except psycopg2.Error as error:
        ours = translate(error, None)
        if isinstance(ours, Again):
            ours = LegacyUnavailable(
                f"{SERVER} ended a transaction in favour of another ({ours.reason}).", hint=_REPEAT
            )
        raise ours from error


def not_the_authority(reason: str) -> StaleEpoch:
    """Postgres refuses as a whole, not by its shards."""
    hint = "Another backend is the authority, or a switch is under way."
    return StaleEpoch(-1, "CLOSED", reason.rstrip("."), hint=hint, is_of_authority=True)


def translate_connect(error: psycopg2.Error) -> SchemalessError:
    """The same for opening a connection: errors of the login carry no code, only a text."""
    ours = translate(error, None)
    text = _first_line(error)
    if (refused := settings_refused(text)) is not None:
        return refused
    if (refused_by := certificate_refused(text)) is not None:
        return refused_by
    if "password authentication failed" in text or ("database" in text and "does not exist" in text):
        return InvalidServer(SERVER, text, hint=way_in(text, "legacy.postgres"))
    if isinstance(ours, ConnectionLost | Again):
        hint = way_in(text, "legacy.postgres")
        return LegacyUnavailable(f"{SERVER} cannot be reached ({text}).", hint=hint)
    return ours


def certificate_refused(reason: str) -> InvalidServer | None:
    """Our error for a server that TLS does not let us believe; None: this says something else."""
    if not any(sign in reason for sign in _UNVERIFIED):
        return None
    return InvalidServer(SERVER, f"its certificate is refused ({reason})", hint=_TRUST)


def settings_refused(reason: str) -> SessionRefused | None:
    """Our error for what a pooler says that takes no settings from clients; None: this says something else."""
    if "unsupported startup parameter" not in reason:
        return None
    return SessionRefused(f"a pooler in between takes no settings ({reason})")


def _first_line(error: psycopg2.Error) -> str:
    text = error.diag.message_primary or str(error).strip() or type(error).__name__
    return text.splitlines()[0]
