"""What of an error is told over HTTP: the status, our class, message and hint, and what became of a put."""

from __future__ import annotations

from typing import Literal

import msgspec

from schemaless_core.aio import ThreadsBusy
from schemaless_core.cell.answers import PutResult
from schemaless_core.cell.put_errors import BatchFailed, CellConflict
from schemaless_core.errors import (
    Conflict,
    Invalid,
    InvalidConfig,
    InvalidServer,
    PositionUnknown,
    SchemalessError,
    SchemaMissing,
    StaleEpoch,
    StoreClosed,
    Unavailable,
)
from schemaless_core.told import Told
from tripstore.http.documents import HttpCell, HttpPut, cell_document, put_document
from tripstore.http.errors import RequestRefused

#: Of the call, by these, the caller is not to blame.
_OPERATORS = (InvalidConfig, InvalidServer, SchemaMissing, StoreClosed, StaleEpoch, Unavailable)
_POSITION = ("shard", "epoch", "added_id", "head_epoch", "head")
#: Seconds after which a caller may try again.
RETRY_AFTER = "1"


class HttpFault(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error: its class, what happened, what to do next.

    `outcome`, of calls that put: `not_stored`, or `unknown`. `stored`: what stands where a put wanted to write.
    `path`: where in a body the culprit is. `facts`: of a position that the log never had.
    """

    kind: str = msgspec.field(name="class")
    message: str
    hint: str | None = None
    outcome: Literal["not_stored", "unknown"] | None = None
    stored: HttpCell | None = None
    path: str | None = None
    facts: dict[str, int] | None = None


class ResultDocument(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of one cell of a batch: a result, or an error."""

    result: HttpPut | None = None
    error: HttpFault | None = None


class FaultAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """`results`: of a batch, in order, what became of each cell."""

    error: HttpFault
    results: list[ResultDocument] | None = None


def status_of(error: Exception) -> int:
    """The status of HTTP that an error has."""
    if isinstance(error, RequestRefused):
        return error.status
    if isinstance(error, BatchFailed):
        return max((status_of(each) for each in error.results if isinstance(each, SchemalessError)), default=500)
    if isinstance(error, Conflict):
        return 409
    if isinstance(error, Unavailable) and getattr(error, "is_timeout", False):
        return 504
    if isinstance(error, _OPERATORS):
        return 503
    return 400 if isinstance(error, Invalid) else 500


def fault_answer(error: Exception, *, is_put: bool) -> FaultAnswer:
    """Return what a caller is told of an error. What was not foreseen is told by its class alone."""
    results = None
    if isinstance(error, BatchFailed):
        results = [_result(each) for each in error.results]
    return FaultAnswer(_fault(error, is_put=is_put), results)


def _result(each: PutResult | SchemalessError) -> ResultDocument:
    if isinstance(each, SchemalessError):
        return ResultDocument(error=_fault(each, is_put=True))
    return ResultDocument(put_document(each))


def _fault(error: Exception, *, is_put: bool) -> HttpFault:
    outcome = _outcome(error) if is_put else None
    if not isinstance(error, Told):
        return HttpFault("InternalError", "The front failed; its log says why.", "Report it.", outcome)
    stored = error.stored if isinstance(error, CellConflict) else None
    return HttpFault(
        type(error).__name__,
        error.message,
        error.hint,
        outcome,
        None if stored is None else cell_document(stored),
        getattr(error, "path", None) or None,
        {name: getattr(error, name) for name in _POSITION} if isinstance(error, PositionUnknown) else None,
    )


def _outcome(error: Exception) -> Literal["not_stored", "unknown"]:
    """What may have happened by `Unavailable`, and by all that is not foreseen, is not known."""
    if isinstance(error, BatchFailed):
        outcomes = {_outcome(each) for each in error.results if isinstance(each, SchemalessError)}
        return "unknown" if "unknown" in outcomes else "not_stored"
    return "not_stored" if isinstance(error, ThreadsBusy | Conflict | Invalid | RequestRefused) else "unknown"
