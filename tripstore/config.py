"""`tripstore.yaml`: the facade's own keys, and the rest for the core, which knows and checks its own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import psycopg2
from psycopg2.extensions import parse_dsn

from schemaless_core.config import (
    KEYS,
    DatastoreConfig,
    DeadlineConfig,
    PoolConfig,
    load_document,
    parse_config,
    refuse_unknown,
    resolve_references,
    section,
)
from schemaless_core.errors import InvalidConfig
from schemaless_core.urls import shown_setting
from tripstore.backends.postgres.layout.layout import Layout
from tripstore.backends.postgres.layout.reading import load_layout

DEFAULT_FILE = Path("tripstore.yaml")
ENVIRONMENT_VARIABLE = "TRIPSTORE_CONFIG"

_URL = "Write postgresql://user:password@host:port/database."
_ESCAPE = "Write a password's @ / : # ? % as %40 %2F %3A %23 %3F %25, or the whole password as ${NAME}."


@dataclass(frozen=True, slots=True)
class LegacyLimits:
    """How long calls to the legacy store may take, how many connections there are, how long its log is kept."""

    put_seconds: float = 2.0  #: One put, waiting for the row's lock included.
    batch_cell_seconds: float = 0.01  #: Added to it per cell of a batch.
    read_seconds: float = 1.0  #: A read by key, a row, a page of the log.
    scan_seconds: float = 60.0  #: A page of rows, a checksum, an index query that has to sort.
    pool_seconds: float = 1.0  #: Waiting for a free connection, on top.
    connect_seconds: float = 1.0  #: Opening a connection, within the call's own deadline.
    pool_size: int = 8  #: Connections kept open per process.
    pool_overflow: int = 24  #: Opened on demand beyond that.
    lock_seconds: float = 1.0  #: Waiting for one lock; somebody's open transaction holds it.
    statement_seconds: float = 60.0  #: One statement, as the server counts; a call's own deadline is shorter.
    idle_transaction_seconds: float = 5.0  #: The server ends a transaction of ours whose process stopped so long.
    log_days: int = 7  #: Delivered changes are kept at least so long; they go by the day.
    truncate: str = "refuse"  #: TRUNCATE of a mapped table: `refuse`, or `allow`, which breaks capture.

    @property
    def deadlines(self) -> DeadlineConfig:
        return DeadlineConfig(**{entry.name: getattr(self, entry.name) for entry in fields(DeadlineConfig)})

    @property
    def pool(self) -> PoolConfig:
        return PoolConfig(self.pool_size, self.pool_overflow)


@dataclass(frozen=True)
class PostgresUrl:
    """Where the company's database is and how to log in. Shown without its password."""

    text: str

    def __str__(self) -> str:
        parts = parse_dsn(self.text)
        place = parts.get("host", "") + (f":{parts['port']}" if "port" in parts else "")
        user = f"{parts['user']}@" if "user" in parts else ""
        return f"postgresql://{user}{place}/{parts['dbname']}"

    def __repr__(self) -> str:
        return f"PostgresUrl({str(self)!r})"


@dataclass(frozen=True, slots=True)
class LegacyConfig:
    """The legacy store: a database, what of it is mapped, and limits."""

    postgres: PostgresUrl
    layout: Layout
    limits: LegacyLimits


LEGACY_KEYS = ("postgres", "layout", *(entry.name for entry in fields(LegacyLimits)))


@dataclass(frozen=True, slots=True)
class TripstoreConfig:
    """Everything that stands in the file; without `legacy` there is no legacy store."""

    core: DatastoreConfig
    legacy: LegacyConfig | None = None


def load_config(source: str | os.PathLike[str] | Mapping[str, Any]) -> TripstoreConfig:
    """Read and check a configuration in full, or raise `InvalidConfig` naming the key, the value and a fix."""
    document, folder = load_document(source)
    refuse_unknown("", document, (*KEYS, "legacy"))
    legacy = document.pop("legacy", None)
    core = parse_config(document, folder)
    return TripstoreConfig(core, None if legacy is None else _legacy(legacy, folder, core.datastore))


def parse_postgres_url(key: str, text: object) -> PostgresUrl:
    """Return the URL, or raise `InvalidConfig` naming the key; the driver's own words would repeat the password."""
    if not isinstance(text, str) or not text.startswith(("postgresql://", "postgres://")):
        is_sqlalchemy = isinstance(text, str) and text.startswith("postgresql+")
        hint = "Leave out +psycopg2: it is SQLAlchemy's." if is_sqlalchemy else _URL
        raise InvalidConfig(key, f"{shown_setting(text)} is no URL of Postgres", hint=hint)
    try:
        parts = parse_dsn(text)
    except (psycopg2.Error, UnicodeError):
        raise InvalidConfig(key, f"{shown_setting(text)} is no URL", hint=f"{_URL} {_ESCAPE}") from None
    if not parts.get("dbname"):
        raise InvalidConfig(key, f"{shown_setting(text)} names no database", hint=_URL)
    if "options" in parts:
        raise InvalidConfig(key, f"{shown_setting(text)} sets options", hint="Leave them out: ours would be lost.")
    return PostgresUrl(text)


def _legacy(value: object, folder: Path, datastore: str) -> LegacyConfig:
    value = resolve_references(value, folder)
    if not isinstance(value, dict):
        hint = "Write legacy: {postgres: postgresql://…, layout: layout.yaml}."
        raise InvalidConfig("legacy", f"{shown_setting(value)} is no mapping", hint=hint)
    refuse_unknown("legacy.", value, LEGACY_KEYS)
    for key, hint in (("postgres", _URL), ("layout", "Name a file; `tripstore init --from` writes one.")):
        if value.get(key) is None:
            raise InvalidConfig(f"legacy.{key}", "is missing", hint=hint)
    limits = section("legacy", LegacyLimits, {key: value[key] for key in value if key not in ("postgres", "layout")})
    if limits.truncate not in ("refuse", "allow"):
        reason = f"{shown_setting(limits.truncate)} is neither refuse nor allow"
        raise InvalidConfig("legacy.truncate", reason, hint="Write refuse; allow breaks capture whenever it happens.")
    url = parse_postgres_url("legacy.postgres", value["postgres"])
    return LegacyConfig(url, _layout(value["layout"], folder, datastore), limits)


def _layout(value: object, folder: Path, datastore: str) -> Layout:
    if isinstance(value, dict):
        return load_layout(value, datastore)
    if not isinstance(value, str):
        raise InvalidConfig(
            "legacy.layout", f"{shown_setting(value)} is no file", hint="Write layout.yaml, or its mapping."
        )
    return load_layout(folder / value, datastore)
