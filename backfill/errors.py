"""What goes wrong while the past is copied, split by what the runner does next."""

from schemaless_core.told import Told


class BackfillError(Told):
    """Base of everything a backfill raises on purpose; `hint` says what to do next."""


class MustWait(BackfillError):
    """Not now: a hand-over goes on, a server does not answer. The same chunk is tried again, with growing pauses."""


class CannotCopy(BackfillError):
    """Not before an operator changes something: the job is paused, with this as its reason."""


class GaveUp(BackfillError):
    """Nothing got through for too long. The job can be resumed."""
