"""The `tripstore.yaml` that a person starts from: every key with what it means, the defaults as comments."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from schemaless_core.config import parse_config

_REFERENCE = re.compile(r"\$\{[^}]*\}")

_TEXT = """\
# Configuration of tripstore. Check it with `tripstore doctor`.
# A password need not stand here: write ${ENV_VARIABLE} or ${file:/path/to/it} in its place.

# The name of the datastore. Its shards are the databases <name>_0000, <name>_0001, …
datastore: @DATASTORE@

# How many shards the cells are spread over. Fixed at creation: row keys depend on it.
shards: @SHARDS@

# The servers. A cluster is one primary, which takes all writes, and its replicas, which may answer reads.
# mysql://user:password@host:port for MySQL or MariaDB, sqlite:///folder for a folder beside this file.
clusters:
@CLUSTERS@
# Where topology and audit log are kept; without this line on the first cluster's primary.
# control: @CONTROL@

# The indexes: a folder of *.yaml files, one index each. `tripstore schema apply` creates those that are new.
# indexes: indexes

# The largest body of a cell, in bytes of canonical JSON.
# max_body_bytes: 4194304

# How long a call may take before it fails, in seconds.
# deadlines:
#   put_seconds: 0.25           # one put, waiting for its shard included
#   batch_cell_seconds: 0.001   # added to it per cell of a batch
#   read_seconds: 1.0           # a read by key, a row, a page of the log
#   scan_seconds: 60.0          # a page of rows, a checksum
#   pool_seconds: 1.0           # waiting for a free connection, on top
#   connect_seconds: 1.0        # opening a connection, within the call's own time

# Connections of one process to one server.
# pool:
#   size: 8                     # kept open
#   overflow: 24                # opened on demand beyond that

# When a server that fails is left alone.
# breaker:
#   failures: 3                 # failures in a row that open the breaker
#   pause_seconds: 0.5          # until the first probe; doubles with each that fails
#   pause_seconds_max: 10.0     # and no longer than this

# How workers of triggers and indexes tail the logs, and what they do about cells that fail.
# triggers:
#   poll_seconds: 0.01          # between two looks while nothing moves
#   idle_poll_seconds: 0.05     # the same once nothing has moved for some seconds
#   page_cells: 500             # cells of one shard fetched at once
#   checkpoint_seconds: 0.2     # between two savings of offsets: so much is delivered again after a crash
#   lease_seconds: 6.0          # a worker that is silent for so long loses its shards
#   handover_seconds: 30.0      # how long a worker may take to let go of a shard
#   attempts: 3                 # calls for one cell before it is parked
#   first_pause_seconds: 0.1    # after the first; each further pause is seven times as long
#   retry_seconds: 60.0         # until a parked cell is tried again; doubled each time
#   retry_seconds_max: 3600.0   # and no longer than this
#   halt_after: 100             # parked cells beyond which the group is halted

# How many days the control database keeps what grows in it; 0 is for ever. `tripstore worker run` removes the rest.
# prune:
#   jobs_days: 90               # jobs that ended, once nothing of them is open
#   counts_days: 90             # what was counted in an hour: comparisons, timings, rehearsals
#   audit_days: 0               # entries of the audit log

# Encrypted connections to MySQL and MariaDB.
# tls:
#   ca: ca.pem                  # the authority that signed the servers' certificates
#   cert: client.pem            # our own certificate, when the servers ask for one
#   key: client-key.pem
#   verify_hostname: true

# The company's tables in Postgres, shown as columns of cells. `tripstore init --from <url> --table trips` proposes the
# layout: which table holds which column. Options of libpq, such as ?sslmode=require, go into the URL.
@LEGACY@#   put_seconds: 2.0            # one put, waiting for the row's lock included
#   batch_cell_seconds: 0.01    # added to it per cell of a batch
#   read_seconds: 1.0           # a read by key, a row, a page of the log
#   scan_seconds: 60.0          # a page of rows, a checksum, an index query that has to sort
#   pool_seconds: 1.0           # waiting for a free connection, on top
#   connect_seconds: 1.0        # opening a connection, within the call's own time
#   pool_size: 8                # connections kept open per process
#   pool_overflow: 24           # opened on demand beyond that
#   lock_seconds: 1.0           # waiting for one lock; a service's open transaction holds it
#   statement_seconds: 60.0     # one statement, as the server counts
#   idle_transaction_seconds: 5.0  # the server ends a transaction of ours whose process stopped so long
#   log_days: 7                 # delivered changes are kept so long
#   truncate: refuse            # TRUNCATE of a mapped table: refuse, or allow, which breaks capture
#   synchronous_commit: "on"    # of a hand-over's decision; remote_apply waits until standbys have applied it
#   direct_writers: reject      # after a switch, SQL that does not go through the facade: reject, or warn

# With a legacy store: how close the mirror must be, how many reads are compared, from when on a switch is safe.
# mirror:
#   max_lag_seconds: 0.05       # a cohort's reads go to the authority while the mirror is further behind
#   cohort_seconds: 0.25        # a cohort's read may take so long in all; then the authority is asked
#   max_pause_seconds: 2.0      # a hand-over that takes longer is undone
# shadow:
#   share: 0.1                  # of all reads; `tripstore shadow set` changes it while everything runs
#   per_second: 200.0           # reads that one process replays in a second
#   least_per_second: 1.0       # of each operation so many, whatever the share
#   threads: 2                  # that compare
#   queue_max: 1000             # reads that may wait; more are not compared
#   age_seconds_max: 5.0        # reads that waited longer are not compared
#   deadline_seconds: 0.25      # for one question to the other backend
# backfill:
#   processes: 1                # of one `tripstore backfill start`
#   parts: 64                   # that a job is cut into; each is leased by one worker at a time
#   chunk_seconds: 2.0          # a chunk has about as many rows as can be copied in so long
#   chunk_rows_max: 20000       # and no more than these
#   verify: 0.05                # of the rows, so many are read once more after writing, and compared
#   rate: 0                     # rows per second, of all processes that serve a job together; 0 is no limit
#   postgres_load_max: 0        # sessions at work in Postgres, the backfill's own among them
#   mirror_lag_seconds_max: 5.0    # nothing is copied while the mirror is further behind
#   replica_lag_cells_max: 100000  # nothing is copied while a replica of Schemaless is further behind
#   lease_seconds: 30.0         # a worker that is silent for so long loses its part to another one
#   patience_seconds: 300.0     # a worker none of whose chunks gets through for so long gives up
# throttle:
#   blocks_max: 0               # blocks that Postgres reads per second for a backfill or a diff; 0 is no limit
#   probe: ""                   # a statement that reads, as services would run it
#   probe_seconds_max: 0        # a job goes slowly while the probe takes longer; 0 is no limit
#   probe_deadline_seconds: 1.0    # a probe without an answer by then is ended, and was slow
# cutover:
#   lag_seconds_max: 1.0        # how old the oldest change that the mirror lacks may be
#   lag_changes_max: 500        # how many changes it may lack
#   writer_seconds_max: 1.0     # who has written and stays in his transaction for longer is waited for
#   rehearsed_cells_min: 100    # cells that the reverse mirror must have compared
#   mismatch_rate_max: 0.001    # the bound of the mismatch rate of each operation class must lie below
#   confidence: 0.95            # how sure the bound is
#   comparisons_min: 1000       # of each operation class so many are compared
#   evidence_hours: 168         # what is older says nothing
#   not_compared_share_max: 0.01  # of the sampled reads of each operation class
#   incomparable: []            # operations that one store cannot answer, such as get_history
"""

_LEGACY_COMMENT = """\
# legacy:
#   postgres: postgresql://user:password@host:port/database
#   layout: layout.yaml
"""

_REPLICAS_COMMENT = "    # replicas: [mysql://user:password@host:port]\n"


@dataclass(frozen=True, slots=True)
class ExampleCluster:
    """The URLs of one cluster as they are to stand in the file."""

    primary: str
    replicas: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ExampleLegacy:
    """The company's database and its layout as they are to stand in the file."""

    postgres: str
    layout: str


def render(
    datastore: str, shards: int, clusters: Mapping[str, ExampleCluster], legacy: ExampleLegacy | None = None
) -> str:
    """Return the text of the file; `InvalidConfig` when no datastore could be made from it."""
    _check(datastore, shards, clusters)
    first = next(iter(clusters.values())).primary
    values = {
        "DATASTORE": datastore,
        "SHARDS": str(shards),
        "CLUSTERS": "".join(_cluster(name, cluster) for name, cluster in clusters.items()),
        "CONTROL": "sqlite:///control" if first.startswith("sqlite:") else "mysql://user:password@host:port",
        "LEGACY": _LEGACY_COMMENT if legacy is None else _legacy(legacy),
    }
    return re.sub("@([A-Z]+)@", lambda match: values[match.group(1)], _TEXT)


def write_private(path: Path, text: str, *, replace: bool) -> None:
    """Write a file for this user's eyes only; `FileExistsError` unless it may replace one."""
    target = path.with_name(f".{path.name}.staging") if replace else path
    if replace:
        target.unlink(missing_ok=True)
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    if replace:
        target.rename(path)


def _check(datastore: str, shards: int, clusters: Mapping[str, ExampleCluster]) -> None:
    """Let the core judge; references to the environment may be unset as yet."""
    document = {
        "datastore": datastore,
        "shards": shards,
        "clusters": {
            name: {
                "primary": _REFERENCE.sub("x", cluster.primary),
                "replicas": [_REFERENCE.sub("x", url) for url in cluster.replicas],
            }
            for name, cluster in clusters.items()
        },
    }
    parse_config(document, Path.cwd())


def _legacy(legacy: ExampleLegacy) -> str:
    return f"legacy:\n  postgres: {json.dumps(legacy.postgres)}\n  layout: {json.dumps(legacy.layout)}\n"


def _cluster(name: str, cluster: ExampleCluster) -> str:
    lines = f"  {name}:\n    primary: {json.dumps(cluster.primary)}\n"
    if cluster.replicas:
        return lines + f"    replicas: {json.dumps(list(cluster.replicas))}\n"
    return lines if cluster.primary.startswith("sqlite:") else lines + _REPLICAS_COMMENT
