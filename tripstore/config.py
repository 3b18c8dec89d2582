"""`tripstore.yaml`: the facade's own keys, and the rest for the core, which knows and checks its own."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import date
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import psycopg2
from psycopg2.extensions import parse_dsn

from schemaless_core.config import (
    KEYS,
    DatastoreConfig,
    DeadlineConfig,
    PoolConfig,
    PruneConfig,
    load_document,
    parse_config,
    refuse_unknown,
    resolve_references,
    section,
)
from schemaless_core.errors import InvalidConfig
from schemaless_core.urls import shown_setting
from tripstore.backends.postgres.ids.index import LEGACY_ID_INDEX, legacy_id_index
from tripstore.backends.postgres.layout.layout import Layout
from tripstore.backends.postgres.layout.reading import load_layout
from tripstore.backends.postgres.wire.settings import DURABLE
from tripstore.engines.validation.compare import DifferenceClass
from tripstore.engines.validation.ignores import Ignore, InvalidIgnore
from tripstore.thresholds import CutoverSettings

_URL = "Write postgresql://user:password@host:port/database."
#: What SQLAlchemy, or Java, has in a URL that libpq has not.
_FOREIGN = re.compile(r"(jdbc:)|postgres(?:ql)?(\+\w+)://")
#: Options of libpq that name files.
_FILES = ("sslrootcert", "sslcert", "sslkey", "sslcrl")
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
    lock_seconds: float = 1.0  #: Waiting for one lock; a service's open transaction holds it.
    statement_seconds: float = 60.0  #: One statement, as the server counts; a call's own deadline is shorter.
    idle_transaction_seconds: float = 5.0  #: The server ends a transaction of ours whose process stopped so long.
    log_days: int = 7  #: Delivered changes are kept at least so long; they go by the day.
    truncate: str = "refuse"  #: TRUNCATE of a mapped table: `refuse`, or `allow`, which breaks capture.
    synchronous_commit: str = "on"  #: Of the authority row's changes, the decision too: `on`, or `remote_apply`.
    direct_writers: str = "reject"  #: After a switch, SQL that does not go through the facade: `reject`, or `warn`.

    @property
    def may_truncate(self) -> bool:
        return self.truncate == "allow"

    @property
    def warns(self) -> bool:
        return self.direct_writers == "warn"

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


@dataclass(frozen=True, slots=True)
class MirrorConfig:
    """How close the mirror must be for reads of a cohort, and how relays carry."""

    max_lag_seconds: float = 0.05  #: A cohort's reads go to the authority while the mirror is further behind.
    cohort_seconds: float = 0.25  #: A cohort's read may take so long; then the authority is asked.
    max_pause_seconds: float = 2.0  #: A hand-over that takes longer is undone by any process that is alive.


@dataclass(frozen=True, slots=True)
class ShadowConfig:
    """How many reads are replayed against the other backend, and what that may cost."""

    share: float = 0.1  #: Of all reads.
    per_second: float = 200.0  #: Reads that one process replays in a second, all operations together.
    least_per_second: float = 1.0  #: Of each operation so many are taken whatever the share.
    threads: int = 2  #: Threads that compare, and connections that they use.
    queue_max: int = 1000  #: Reads that may wait; more are not compared.
    age_seconds_max: float = 5.0  #: Reads that waited longer are not compared.
    deadline_seconds: float = 0.25  #: For one question to the other backend.


@dataclass(frozen=True, slots=True)
class BackfillConfig:
    """How backfills copy, and what they spare. A limit of 0 is none."""

    processes: int = 1  #: Of one `backfill start`; every worker that serves detached jobs is one.
    parts: int = 64  #: That a job is cut into; each is leased by one worker at a time.
    chunk_seconds: float = 2.0  #: A chunk has about as many rows as can be copied in so long.
    chunk_rows_max: int = 20_000  #: And no more than these; by blocks, four times as many, of one table.
    verify: float = 0.05  #: Of the rows, so many are read once more after writing, and compared.
    rate: int = 0  #: Row keys per second, of all processes that serve a job together.
    postgres_load_max: float = 0.0  #: Sessions at work in Postgres, the backfill's own among them.
    mirror_lag_seconds_max: float = 5.0  #: Nothing is copied while the mirror is further behind.
    replica_lag_cells_max: int = 100_000  #: Nothing is copied while a replica of Schemaless is further behind.
    lease_seconds: float = 30.0  #: A worker that is silent for so long loses its part to another one.
    patience_seconds: float = 300.0  #: A worker none of whose chunks gets through for so long gives up.


@dataclass(frozen=True, slots=True)
class ThrottleConfig:
    """By what backfills and diffs slow down, as it hurts Postgres and services. A limit of 0 is none."""

    blocks_max: int = 0  #: Blocks that Postgres reads per second for a job, for all of its processes together.
    probe: str = ""  #: A statement that reads, as services would run it.
    probe_seconds_max: float = 0.0  #: A job slows down while the probe takes longer.
    probe_deadline_seconds: float = 1.0  #: A probe without an answer by then is ended, and was slow.


#: Keys of `backfill:` and `throttle:` that may be 0: no limit, nothing is read once more.
NO_LIMIT = ("verify", "rate", "postgres_load_max", "mirror_lag_seconds_max", "replica_lag_cells_max")
NO_THROTTLE = ("blocks_max", "probe_seconds_max")

LEGACY_KEYS = ("postgres", "layout", *(entry.name for entry in fields(LegacyLimits)))


FACADE_KEYS = ("legacy", "mirror", "shadow", "backfill", "throttle", "cutover")
_IGNORE_KEYS = ("reason", "owner", "until", "operation", "entry", "path", "class")
_IGNORE = "Write ignores: [{reason: …, owner: …, until: 2027-03-31, operation: get_row, path: updated_at}]."


@dataclass(frozen=True, slots=True)
class HttpDocument:
    """`http` as it is written: `tripstore.http.settings` looks its tokens up where it is served, and only there."""

    given: Any = None
    folder: Path = field(default_factory=Path.cwd)

    def __repr__(self) -> str:
        return "HttpDocument()"  # a token may stand in it


@dataclass(frozen=True, slots=True)
class TripstoreConfig:
    """Everything that stands in the file; without `legacy` there is no legacy store."""

    core: DatastoreConfig
    legacy: LegacyConfig | None = None
    mirror: MirrorConfig = field(default_factory=MirrorConfig)
    shadow: ShadowConfig = field(default_factory=ShadowConfig)
    ignores: tuple[Ignore, ...] = ()
    backfill: BackfillConfig = field(default_factory=BackfillConfig)
    throttle: ThrottleConfig = field(default_factory=ThrottleConfig)
    cutover: CutoverSettings = field(default_factory=CutoverSettings)
    http: HttpDocument = field(default_factory=HttpDocument)


def load_config(source: str | os.PathLike[str] | Mapping[str, Any] | None) -> TripstoreConfig:
    """Read and check a configuration in full, or raise `InvalidConfig` naming the key, the value and a fix."""
    document, folder = load_document(source)
    refuse_unknown("", document, (*KEYS, *FACADE_KEYS, "http"))
    http = HttpDocument(document.pop("http", None), folder)
    legacy, mirror, shadow, backfill, throttle, cutover = (document.pop(key, None) for key in FACADE_KEYS)
    core = parse_config(document, folder)
    if legacy is None:
        for key, value in zip(FACADE_KEYS[1:], (mirror, shadow, backfill, throttle, cutover), strict=True):
            if value is not None:
                raise InvalidConfig(key, "is about two stores, and there is no legacy", hint="Add legacy, or drop it.")
        return TripstoreConfig(core, http=http)
    if any(definition.name == LEGACY_ID_INDEX for definition in core.indexes):
        hint = "Give it another name; this one is made by itself, for legacy ids."
        raise InvalidConfig("indexes", f"defines {LEGACY_ID_INDEX}", hint=hint)
    core = replace(core, indexes=(*core.indexes, legacy_id_index(core.datastore)))
    settings, ignores = _shadow(shadow)
    legacy_config = _legacy(legacy, folder, core.datastore)
    mirror_config = section("mirror", MirrorConfig, mirror)
    cutover_settings = section("cutover", CutoverSettings, cutover)
    _refuse_pruned_evidence(core.prune, cutover_settings)
    return TripstoreConfig(
        core,
        legacy_config,
        mirror_config,
        settings,
        ignores,
        _backfill(backfill),
        _throttle(throttle),
        cutover_settings,
        http,
    )


def _refuse_pruned_evidence(prune: PruneConfig, cutover: CutoverSettings) -> None:
    """Refuse ages that would take from the gates what they go by."""
    if 0 < 24 * (prune.counts_days - 1) < cutover.evidence_hours:
        reason = f"is {prune.counts_days}, and gates go by what was counted within {cutover.evidence_hours} hours"
        hint = f"Write at least {-(-cutover.evidence_hours // 24) + 1}, or 0 to keep all."
        raise InvalidConfig("prune.counts_days", reason, hint=hint)


def parse_postgres_url(key: str, text: object) -> PostgresUrl:
    """Return the URL, or raise `InvalidConfig` naming the key; the driver's own words would repeat the password."""
    if not isinstance(text, str) or not text.startswith(("postgresql://", "postgres://")):
        foreign = _FOREIGN.match(text) if isinstance(text, str) else None
        hint = f"Leave out {foreign[1] or foreign[2]}: it is a driver's. {_URL}" if foreign else _URL
        raise InvalidConfig(key, f"{shown_setting(text)} is no URL of Postgres", hint=hint)
    try:
        parts = parse_dsn(text)
    except (psycopg2.Error, UnicodeError):
        raise InvalidConfig(key, f"{shown_setting(text)} is no URL", hint=f"{_URL} {_ESCAPE}") from None
    if "@" in parts.get("host", ""):  # the driver's complaint would repeat what stands there
        raise InvalidConfig(key, f"{shown_setting(text)} has an @ in its host or its password", hint=_ESCAPE)
    if not parts.get("dbname"):
        raise InvalidConfig(key, f"{shown_setting(text)} names no database", hint=_URL)
    if "options" in parts:
        raise InvalidConfig(key, f"{shown_setting(text)} sets options", hint="Leave them out: ours would be lost.")
    return PostgresUrl(text)


def _backfill(value: object) -> BackfillConfig:
    found: BackfillConfig = _limited("backfill", BackfillConfig, value, NO_LIMIT)
    if found.verify > 1:
        raise InvalidConfig("backfill.verify", f"{found.verify:g} is no share", hint="Write 0.05; 1 is every row.")
    return found


def _throttle(value: object) -> ThrottleConfig:
    found: ThrottleConfig = _limited("throttle", ThrottleConfig, value, NO_THROTTLE)
    if found.probe_seconds_max and not found.probe:
        hint = "Write the statement: probe: SELECT 1 FROM trips WHERE id = 7. Or drop the limit."
        raise InvalidConfig("throttle.probe", "is missing, and there is a limit on its latency", hint=hint)
    if found.probe_seconds_max >= found.probe_deadline_seconds:
        reason = f"{found.probe_deadline_seconds:g} s ends the probe before its limit of {found.probe_seconds_max:g} s"
        raise InvalidConfig("throttle.probe_deadline_seconds", reason, hint="Write a longer one.")
    return found


def _limited(name: str, struct: type[Any], value: object, no_limit: Sequence[str]) -> Any:
    """A section with keys that may be 0, which no other setting may be."""
    given = value if isinstance(value, dict) else {}
    zeros = {key for key in no_limit if type(given.get(key)) in (int, float) and given[key] == 0}
    rest = {key: found for key, found in given.items() if key not in zeros}
    return replace(section(name, struct, rest if isinstance(value, dict) else value), **dict.fromkeys(zeros, 0))


def _shadow(value: object) -> tuple[ShadowConfig, tuple[Ignore, ...]]:
    if value is not None and not isinstance(value, dict):
        raise InvalidConfig("shadow", f"{shown_setting(value)} is no mapping", hint="Write shadow: {share: 0.1}.")
    given = dict(value or {})
    ignores = given.pop("ignores", None) or []
    share = given.get("share")
    if share is not None and not (isinstance(share, int | float) and type(share) is not bool and 0 < share <= 1):
        hint = "Write a number up to 1: 0.1 is every tenth. `tripstore shadow set --share 0` compares nothing."
        raise InvalidConfig("shadow.share", f"{shown_setting(share)} is no share", hint=hint)
    if not isinstance(ignores, list):
        raise InvalidConfig("shadow.ignores", f"{shown_setting(ignores)} is no list", hint=_IGNORE)
    return section("shadow", ShadowConfig, given), tuple(_ignore(n, rule) for n, rule in enumerate(ignores))


def _ignore(n: int, rule: object) -> Ignore:
    key = f"shadow.ignores[{n}]"
    if not isinstance(rule, dict):
        raise InvalidConfig(key, f"{shown_setting(rule)} is no mapping", hint=_IGNORE)
    refuse_unknown(f"{key}.", rule, _IGNORE_KEYS)
    for name in ("reason", "owner", "until"):
        if name not in rule:
            raise InvalidConfig(f"{key}.{name}", "is missing", hint=_IGNORE)
    given = dict(rule)
    kind = given.pop("class", None)
    if kind is not None and kind not in list(DifferenceClass):
        raise InvalidConfig(f"{key}.class", f"{shown_setting(kind)} is no class", hint=", ".join(DifferenceClass))
    if type(given["until"]) is not date:
        raise InvalidConfig(f"{key}.until", f"{shown_setting(given['until'])} is no day", hint="Write 2027-03-31.")
    for name, text in given.items():
        if name != "until" and not isinstance(text, str):
            raise InvalidConfig(f"{key}.{name}", f"{shown_setting(text)} is no text", hint=_IGNORE)
    try:
        return Ignore(**given, kind=None if kind is None else DifferenceClass(kind))
    except InvalidIgnore as error:
        raise InvalidConfig(key, error.message.rstrip("."), hint=error.hint) from error


def _legacy(value: object, folder: Path, datastore: str) -> LegacyConfig:
    value = resolve_references(value, folder)
    if not isinstance(value, dict):
        hint = "Write legacy: {postgres: postgresql://…, layout: layout.yaml}."
        raise InvalidConfig("legacy", f"{shown_setting(value)} is no mapping", hint=hint)
    refuse_unknown("legacy.", value, LEGACY_KEYS)
    for key, hint in (("postgres", _URL), ("layout", "Name a file; `tripstore init --from` writes one.")):
        if value.get(key) is None:
            raise InvalidConfig(f"legacy.{key}", "is missing", hint=hint)
    if value.get("synchronous_commit") is True:  # YAML reads a bare `on` so
        value = {**value, "synchronous_commit": "on"}
    limits = section("legacy", LegacyLimits, {key: value[key] for key in value if key not in ("postgres", "layout")})
    if limits.truncate not in ("refuse", "allow"):
        reason = f"{shown_setting(limits.truncate)} is neither refuse nor allow"
        raise InvalidConfig("legacy.truncate", reason, hint="Write refuse; allow breaks capture whenever it happens.")
    if limits.synchronous_commit not in DURABLE:
        reason = f"{shown_setting(limits.synchronous_commit)} is neither {' nor '.join(DURABLE)}"
        hint = "Write on: with less, a decision that was acknowledged may be lost in a crash."
        raise InvalidConfig("legacy.synchronous_commit", reason, hint=hint)
    if limits.direct_writers not in ("reject", "warn"):
        reason = f"{shown_setting(limits.direct_writers)} is neither reject nor warn"
        hint = "Write reject; with warn, what they write after a switch is in Postgres alone."
        raise InvalidConfig("legacy.direct_writers", reason, hint=hint)
    url = _beside(parse_postgres_url("legacy.postgres", value["postgres"]), folder)
    return LegacyConfig(url, _layout(value["layout"], folder, datastore), limits)


def _beside(url: PostgresUrl, folder: Path) -> PostgresUrl:
    """The same with its files of TLS found from the folder of the configuration, as tls.ca is."""
    parts = urlsplit(url.text)
    options = parse_qsl(parts.query, keep_blank_values=True)
    found = [(name, str(folder / text) if name in _FILES and text != "system" else text) for name, text in options]
    if found == options:
        return url
    return PostgresUrl(urlunsplit(parts._replace(query=urlencode(found, quote_via=quote))))


def _layout(value: object, folder: Path, datastore: str) -> Layout:
    if isinstance(value, dict):
        return load_layout(value, datastore)
    if not isinstance(value, str):
        raise InvalidConfig(
            "legacy.layout", f"{shown_setting(value)} is no file", hint="Write layout.yaml, or its mapping."
        )
    return load_layout(folder / value, datastore)
