"""The base of what goes wrong while two stores are compared."""

from schemaless_core.told import Told


class ValidationError(Told):
    """Base of everything a comparison raises on purpose; `hint` says what to do next.

    A difference between two stores is an answer, not an error.
    """
