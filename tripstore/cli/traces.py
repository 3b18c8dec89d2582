"""`make_traces`: what `TRIPSTORE_TRACES=otel` asks of a command, a worker above all."""

from __future__ import annotations

import os

from schemaless_core.errors import InvalidConfig

VARIABLE = "TRIPSTORE_TRACES"


def make_traces() -> None:
    """Make spans from now on, if the environment says so."""
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        return
    if wanted != "otel":
        raise InvalidConfig(VARIABLE, "is not otel", hint="Write otel, or unset it.")
    try:
        from tripstore.otel import instrument  # the extra may not be installed; without the variable, nothing waits
    except ImportError as error:
        hint = "pip install 'tripstore[otel]', or unset it."
        raise InvalidConfig(VARIABLE, f"needs {error.name}, which is not installed", hint=hint) from error
    instrument()
