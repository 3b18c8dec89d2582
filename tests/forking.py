"""`FORK_SERVER`: where processes of tests come from. It has imported what they need; alone each would take a second."""

from __future__ import annotations

import multiprocessing

FORK_SERVER = multiprocessing.get_context("forkserver")
#: One server for all tests of a process: the test that starts it first imports these for all later ones.
FORK_SERVER.set_forkserver_preload(
    [
        "__main__",
        "pytest",
        "tests.chaos.actors",
        "tests.chaos.backfill_actors",
        "tests.chaos.capture_actors",
        "tests.chaos.deadly_actors",
        "tests.chaos.switch_actors",
        "tests.chaos.trigger_actors",
        "tests.integration.creation",
        "tests.mirrors",
    ]
)
