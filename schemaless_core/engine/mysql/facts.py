"""What the doctor wants to know of a MySQL or MariaDB server."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from pymysql import err
from pymysql.cursors import DictCursor

from schemaless_core.config import DatastoreConfig
from schemaless_core.engine.ahead import AHEAD_SECONDS, ahead_facts
from schemaless_core.engine.base import BYTES_PER_BATCH, Fact
from schemaless_core.engine.mysql.names import Names
from schemaless_core.engine.mysql.schema import shards_present
from schemaless_core.engine.mysql.wire.connection import ROWS_WANTED, DeadlineConnection

VARIABLES = """\
SHOW GLOBAL VARIABLES WHERE Variable_name IN ('version', 'innodb_flush_log_at_trx_commit', 'sync_binlog', 'log_bin',
 'binlog_format', 'table_open_cache', 'table_open_cache_instances', 'table_definition_cache', 'open_files_limit',
 'max_allowed_packet', 'sql_mode', 'read_only', 'replica_preserve_commit_order', 'slave_parallel_mode',
 'innodb_doublewrite', 'rpl_semi_sync_source_enabled', 'rpl_semi_sync_source_wait_point',
 'rpl_semi_sync_source_timeout', 'rpl_semi_sync_master_enabled', 'rpl_semi_sync_master_wait_point',
 'rpl_semi_sync_master_timeout')"""
SEMI_SYNC_STATUS = """\
SHOW GLOBAL STATUS WHERE Variable_name IN ('Rpl_semi_sync_source_status', 'Rpl_semi_sync_source_clients',
 'Rpl_semi_sync_master_status', 'Rpl_semi_sync_master_clients')"""
NOW = "SELECT UTC_TIMESTAMP(6)"
MD5 = "SELECT MD5('')"
REPLICA_STATUS = "SHOW REPLICA STATUS"
AHEAD = f"""\
SELECT COUNT(*), MAX(last_created_at) FROM {{state}}
 WHERE last_created_at > UTC_TIMESTAMP(6) + INTERVAL {AHEAD_SECONDS} SECOND"""
LOGS = "SELECT table_schema FROM information_schema.tables WHERE table_name = 'cell'"
COPIES = "SELECT shard FROM {state} WHERE state = 'MOVED'"
NAMED_MAX = 10

MYSQL_VERSION_MIN = (8, 0, 22)
MARIADB_VERSION_MIN = (10, 11, 0)
CLOCK_SECONDS_MAX = 1.0


def facts(
    connection: DeadlineConnection, config: DatastoreConfig, *, is_replica: bool, shards: int, has_replicas: bool
) -> list[Fact]:
    with connection.cursor() as cursor:
        cursor.execute(VARIABLES)
        variables: dict[str, str] = {str(name): str(value) for name, value in cursor.fetchall()}
        cursor.execute(NOW)
        (now,) = cursor.fetchone() or (datetime.now(UTC),)
    found = [
        _version(connection, variables),
        _durable_log(variables),
        _durable_binlog(variables),
        _whole_pages(variables),
        _packet(variables, config),
        _row_format(variables),
        *_caches(variables, shards),
        *([] if connection.is_mariadb else [_cache_instances(variables, shards)]),
        _clock(now.replace(tzinfo=UTC)),
        Fact(
            "sql_mode",
            variables["sql_mode"] or "(empty)",
            True,
            advice="Our sessions set their own strict mode.",
        ),
    ]
    found.append(_md5(connection))
    if is_replica:
        found.extend(_replication(connection, variables))
    else:
        found.append(
            Fact(
                "read_only",
                variables.get("read_only", "OFF"),
                variables.get("read_only", "OFF") in ("OFF", "0"),
                is_refusal=True,
                advice="A primary must take writes: SET GLOBAL read_only = 0.",
            )
        )
        if has_replicas:
            found.append(_semi_sync(connection, variables))
    return found


def ahead(connection: DeadlineConnection, names: Names) -> list[Fact]:
    """Whether times of shards run ahead of the server's clock."""
    with connection.cursor() as cursor:
        cursor.execute(AHEAD.format(state=names.shard_state))
        return ahead_facts(*(cursor.fetchone() or (0, None)))


def lost_shards(connection: DeadlineConnection, names: Names) -> Iterator[Fact]:
    """Shards of which an operator dropped the database, or the table: `schema apply` does not make them anew.

    No copies: of those a command drops the database.
    """
    recorded = shards_present(connection, names)
    if not recorded:
        return
    with connection.cursor() as cursor:
        cursor.execute(LOGS)
        there = {f"`{database}`" for (database,) in cursor.fetchall()}
        cursor.execute(COPIES.format(state=names.shard_state))
        recorded -= {shard for (shard,) in cursor.fetchall()}
    lost = [str(shard) for shard in sorted(recorded) if names.database(shard) not in there]
    if lost:
        more = f" and {len(lost) - NAMED_MAX} more" if len(lost) > NAMED_MAX else ""
        value = f"the cells of shard {', '.join(lost[:NAMED_MAX])}{more} are no table any more"
        advice = "`tripstore backup restore` has them, on servers of its own: docs/howto/backup.md."
        yield Fact("databases", value, False, True, advice)


def _version(connection: DeadlineConnection, variables: Mapping[str, str]) -> Fact:
    text = variables["version"]
    numbers = tuple(int(part) for part in re.findall(r"\d+", text)[:3])
    least = MARIADB_VERSION_MIN if connection.is_mariadb else MYSQL_VERSION_MIN
    kind = "MariaDB" if connection.is_mariadb else "MySQL"
    wanted = ".".join(str(part) for part in least)
    return Fact("version", f"{kind} {text}", numbers >= least, True, f"Upgrade to {kind} {wanted} or later.")


def _durable_log(variables: Mapping[str, str]) -> Fact:
    value = variables["innodb_flush_log_at_trx_commit"]
    return Fact(
        "innodb_flush_log_at_trx_commit",
        value,
        value == "1",
        True,
        "An acknowledged cell must survive a crash (I1): SET GLOBAL innodb_flush_log_at_trx_commit = 1.",
    )


def _durable_binlog(variables: Mapping[str, str]) -> Fact:
    value = variables["sync_binlog"]
    is_fine = value == "1" or variables["log_bin"] in ("OFF", "0")
    return Fact(
        "sync_binlog",
        value,
        is_fine,
        True,
        "Replicas must not know less than an acknowledged cell after a crash (I1): SET GLOBAL sync_binlog = 1.",
    )


def _whole_pages(variables: Mapping[str, str]) -> Fact:
    value = variables["innodb_doublewrite"]
    return Fact(
        "innodb_doublewrite",
        value,
        value not in ("OFF", "0", "DETECT_ONLY"),
        True,
        "A power cut may tear pages (I1): start the server with innodb_doublewrite = ON.",
    )


def _semi_sync(connection: DeadlineConnection, variables: Mapping[str, str]) -> Fact:
    """Whether a commit waits for a replica, so that the loss of this server loses nothing that was acknowledged."""
    is_newer = "rpl_semi_sync_source_enabled" in variables
    prefix = "rpl_semi_sync_source" if is_newer else "rpl_semi_sync_master"
    if variables.get(f"{prefix}_enabled", "OFF") not in ("ON", "1"):
        risk = "off: acknowledged cells that no replica has yet are on this disk alone"
        return Fact("semi-sync", risk, True)
    if (point := variables[f"{prefix}_wait_point"]) != "AFTER_SYNC":
        advice = f"Readers see cells that are lost with this server: SET GLOBAL {prefix}_wait_point = 'AFTER_SYNC'."
        return Fact("semi-sync", f"on, {point}", False, advice=advice)
    with connection.cursor() as cursor:
        cursor.execute(SEMI_SYNC_STATUS)
        status = {str(name).lower(): str(value) for name, value in cursor.fetchall()}
    clients = status[f"{prefix}_clients"]
    if status[f"{prefix}_status"] != "ON":
        advice = (
            "Commits wait for no replica, as without it: look why replicas do not acknowledge, or raise the timeout."
        )
        return Fact("semi-sync", f"on, and has fallen back; replicas that take part: {clients}", False, advice=advice)
    timeout = variables[f"{prefix}_timeout"]
    said = f"on, AFTER_SYNC; replicas that take part: {clients}; it falls back after {timeout} ms"
    return Fact("semi-sync", said, True)


def _packet(variables: Mapping[str, str], config: DatastoreConfig) -> Fact:
    value, needed = int(variables["max_allowed_packet"]), packet_bytes(config)
    return Fact(
        "max_allowed_packet",
        f"{value:,}",
        value >= needed,
        True,
        f"Bodies of max_body_bytes need {needed:,}: SET GLOBAL max_allowed_packet = {needed}, or lower max_body_bytes.",
    )


def packet_bytes(config: DatastoreConfig) -> int:
    """The greatest packet that a put or a batch sends. Escaping can double a body, and a batch is one packet."""
    return 2 * max(config.max_body_bytes, BYTES_PER_BATCH) + 256 * 1024


def _row_format(variables: Mapping[str, str]) -> Fact:
    value = variables["binlog_format"] if variables["log_bin"] in ("ON", "1") else "(no binlog)"
    return Fact(
        "binlog_format",
        value,
        value in ("ROW", "(no binlog)"),
        value == "STATEMENT",  # no write is possible then
        f"Statements that read the clock replicate exactly only as rows: {ROWS_WANTED}",
    )


def _caches(variables: Mapping[str, str], shards: int) -> Iterator[Fact]:
    needed = 4 * shards
    for name in ("table_open_cache", "table_definition_cache"):
        yield Fact(
            name,
            variables[name],
            int(variables[name]) >= needed,
            False,
            f"With {shards} shards on this server calls slow down: SET GLOBAL {name} = {needed}.",
        )
    limit = int(variables["open_files_limit"])
    yield Fact(
        "open_files_limit",
        str(limit),
        limit >= needed,
        False,
        f"Start the server with open_files_limit = {2 * needed}.",
    )


def _cache_instances(variables: Mapping[str, str], shards: int) -> Fact:
    """MySQL divides the cache for good, and a session uses one part; MariaDB divides it only under contention."""
    instances = int(variables["table_open_cache_instances"])
    return Fact(
        "table_open_cache_instances",
        str(instances),
        int(variables["table_open_cache"]) >= instances * shards,
        False,
        f"Each part of the cache must hold {shards} shards: start the server with table_open_cache_instances = 1.",
    )


def _md5(connection: DeadlineConnection) -> Fact:
    try:
        with connection.cursor() as cursor:
            cursor.execute(MD5)
        value, is_fine = "in the server", True
    except err.MySQLError:
        value, is_fine = "missing", False
    return Fact(
        "md5",
        value,
        is_fine,
        False,
        "Checksums are computed in the client, several times slower: "
        "INSTALL COMPONENT 'file://component_classic_hashing'.",
    )


def _clock(now: datetime) -> Fact:
    offset = (now - datetime.now(UTC)).total_seconds()
    return Fact(
        "clock",
        f"{offset:+.3f} s from this host",
        abs(offset) <= CLOCK_SECONDS_MAX,
        False,
        "Synchronise the clocks (chrony or ntpd): times of cells come from the server.",
    )


def _replication(connection: DeadlineConnection, variables: Mapping[str, str]) -> Iterator[Fact]:
    status = _replica_status(connection)
    if not status:
        yield Fact("replication", "not set up", False, False, "Set up replication from the cluster's primary.")
        return
    running = all(status.get(key) == "Yes" for key in ("io_running", "sql_running"))
    value = "running" if running else f"stopped ({status.get('last_error') or 'no error given'})"
    yield Fact("replication", value, running, False, "Mend the error, then START REPLICA.")
    behind = status.get("seconds_behind")
    yield Fact(
        "replication_lag",
        "unknown" if behind is None else f"{behind} s",
        behind is not None and int(behind) <= 10,
        False,
        "Look at its load.",
    )
    ordered = variables.get("replica_preserve_commit_order", "ON") in ("ON", "1")
    in_order = ordered and variables.get("slave_parallel_mode", "none") not in ("minimal", "aggressive")
    yield Fact(
        "in_order_apply",
        "yes" if in_order else "no",
        in_order,
        False,
        "A replica that applies out of order shows holes in the log: SET GLOBAL replica_preserve_commit_order = 1.",
    )


def _replica_status(connection: DeadlineConnection) -> dict[str, Any]:
    """One vocabulary for both vendors' column names."""
    with connection.cursor(DictCursor) as cursor:
        cursor.execute(REPLICA_STATUS)
        raw = cursor.fetchone()
    if raw is None:
        return {}
    return {
        "io_running": raw.get("Replica_IO_Running", raw.get("Slave_IO_Running")),
        "sql_running": raw.get("Replica_SQL_Running", raw.get("Slave_SQL_Running")),
        "seconds_behind": raw.get("Seconds_Behind_Source", raw.get("Seconds_Behind_Master")),
        "last_error": raw.get("Last_Error") or raw.get("Last_IO_Error"),
    }
