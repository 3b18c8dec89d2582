"""Capture: Postgres triggers that log every committed change of the mapped tables, by any writer; and the gate."""

from tripstore.backends.postgres.capture.install import capture_steps
from tripstore.backends.postgres.capture.migrate import migrate
from tripstore.backends.postgres.capture.removal import remove
from tripstore.backends.postgres.capture.state import CaptureState, note_gap, read_state
from tripstore.backends.postgres.capture.verify import verify

__all__ = ["CaptureState", "capture_steps", "migrate", "note_gap", "read_state", "remove", "verify"]
