"""The configuration of a datastore: structs with default, unit and check, built from YAML or a mapping.

Every complaint names the key, the value and a fix. YAML is read here (that of indexes in `indexes`); passwords come
from `${ENV_VARIABLE}` or `${file:/path}`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from schemaless_core.breaker import BreakerConfig
from schemaless_core.cell.cell import DEFAULT_MAX_BODY_BYTES
from schemaless_core.definitions.index import IndexDefinition, load_definitions
from schemaless_core.environment import has_settings, with_settings
from schemaless_core.errors import InvalidConfig
from schemaless_core.referenced import Referenced
from schemaless_core.strict_yaml import DEPTH_MAX, TooMuch, Twice, load_strict
from schemaless_core.urls import (
    NodeUrl,
    ZooKeeperUrl,
    check_database,
    parse_node_url,
    parse_zookeeper_url,
    shown_setting,
)

_DATASTORE_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_CLUSTER_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")
_REFERENCE = re.compile(r"\$\{(file:)?([^}]+)\}")
SHARDS_MAX = 65536
#: No setting is longer.
TEXT_MAX = 10_000


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """A primary and its replicas."""

    name: str
    primary: NodeUrl
    replicas: tuple[NodeUrl, ...] = ()


@dataclass(frozen=True, slots=True)
class DeadlineConfig:
    """How long a call may take before it fails."""

    put_seconds: float = 0.25  #: One put, waiting for the counter row included.
    batch_cell_seconds: float = 0.001  #: Added to it per cell of a batch.
    read_seconds: float = 1.0  #: A read by key, a row, a page of the log.
    scan_seconds: float = 60.0  #: A page of rows, a checksum.
    pool_seconds: float = 1.0  #: Waiting for a free connection, on top.
    connect_seconds: float = 1.0  #: Opening a connection, within the call's own deadline.


@dataclass(frozen=True, slots=True)
class PoolConfig:
    """Connections to one server, and the sessions there that a process may have at most."""

    size: int = 8  #: Kept open.
    overflow: int = 24  #: Opened on demand beyond that.
    reads: int = 8  #: How many of both writes leave alone, but never more than half.

    @property
    def places(self) -> int:
        """How many connections there are at most."""
        return self.size + self.overflow

    @property
    def write_places(self) -> int:
        """How many of them writes may have."""
        return self.places - min(self.reads, self.places // 2)


@dataclass(frozen=True, slots=True)
class TriggerConfig:
    """How workers tail the log and what they do about cells that fail."""

    poll_seconds: float = 0.01  #: Between two looks at the heads while nothing moves.
    #: The same where nothing has moved for a while: a look reads a row for each shard of a server.
    idle_poll_seconds: float = 0.05
    page_cells: int = 500  #: Cells of one shard fetched at once.
    checkpoint_seconds: float = 0.2  #: Between two savings of offsets; functions are called so long at a time.
    lease_seconds: float = 6.0  #: A worker that is silent for so long loses its shards.
    handover_seconds: float = 30.0  #: How long a worker may take to let go of a shard.
    attempts: int = 3  #: Calls of a function for one cell before it is parked.
    first_pause_seconds: float = 0.1  #: After the first; each further pause is seven times as long.
    retry_seconds: float = 60.0  #: Until a parked cell is tried again; doubled each time.
    retry_seconds_max: float = 3600.0  #: But never longer than this.
    halt_after: int = 100  #: Parked cells beyond which the group is halted.
    #: Where workers agree on which of them serves which shard: zookeeper://host:2181/path. None: the control database.
    coordinator: ZooKeeperUrl | None = None


@dataclass(frozen=True, slots=True)
class BufferConfig:
    """Where cells wait whose own cluster does not take them. Without this section there are no buffers."""

    put_seconds: float = 0.25  #: What a put that its own cluster did not take in time may take on top.
    max_cells: int = 1_000_000  #: Of one server's buffer; beyond that it takes no more.
    max_bytes: int = 4 * 1024**3  #: The same, of bodies.
    cells_per_second: int = 20_000  #: How fast one worker carries what waits to a cluster that is back.


@dataclass(frozen=True, slots=True)
class PruneConfig:
    """How long the control database keeps what grows in it. 0: for ever."""

    jobs_days: int = 90  #: Jobs that ended, once nothing of them is open.
    counts_days: int = 90  #: What was counted in an hour: comparisons, timings, rehearsals.
    audit_days: int = 0  #: Entries of the audit log.


@dataclass(frozen=True, slots=True)
class ReplicationConfig:
    """As whom replicas log in at their primary: a promotion makes servers replicas of another one."""

    user: str | None = None
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """TLS options, passed to the driver. Off when all are empty."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    verify_hostname: bool = True


@dataclass(frozen=True, slots=True)
class DatastoreConfig:
    """Everything a `Datastore` is made from."""

    datastore: str
    shards: int
    clusters: tuple[ClusterConfig, ...]
    control: NodeUrl
    indexes: tuple[IndexDefinition, ...] = ()
    max_body_bytes: int = DEFAULT_MAX_BODY_BYTES
    deadlines: DeadlineConfig = field(default_factory=DeadlineConfig)
    pool: PoolConfig = field(default_factory=PoolConfig)
    breaker: BreakerConfig = field(default_factory=BreakerConfig)
    triggers: TriggerConfig = field(default_factory=TriggerConfig)
    tls: TlsConfig = field(default_factory=TlsConfig)
    #: None: there are none.
    buffer: BufferConfig | None = None
    replication: ReplicationConfig = field(default_factory=ReplicationConfig)
    prune: PruneConfig = field(default_factory=PruneConfig)


_SECTIONS = {
    "deadlines": DeadlineConfig,
    "pool": PoolConfig,
    "breaker": BreakerConfig,
    "replication": ReplicationConfig,
    "prune": PruneConfig,
}
KEYS = tuple(entry.name for entry in fields(DatastoreConfig))


#: Where the configuration is, unless it is said; and a variable that says it.
DEFAULT_FILE, FILE_VARIABLE = "tripstore.yaml", "TRIPSTORE_CONFIG"


def load_document(source: str | os.PathLike[str] | Mapping[str, Any] | None) -> tuple[dict[str, Any], Path]:
    """Return the mapping of a configuration and the folder that its relative paths start from.

    What the environment sets is laid over a file, and does without one where none is named. A mapping is whole.
    """
    if isinstance(source, Mapping):
        refuse_unfit_texts(source)
        return dict(source), Path.cwd()
    path = Path(os.environ.get(FILE_VARIABLE) or DEFAULT_FILE if source is None else source)
    if not has_settings(os.environ):
        return _read(path), path.resolve().parent
    is_alone = path == Path(DEFAULT_FILE) and not path.exists()
    document = with_settings({} if is_alone else _read(path), os.environ)
    refuse_unfit_texts(document)
    return document, path.resolve().parent


def _read(path: Path) -> dict[str, Any]:
    try:
        document = load_strict(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise InvalidConfig(
            str(path),
            f"cannot be read ({problem.strerror})",
            hint="Go to the folder that has one, or name it by --config; `tripstore init` writes a new one.",
        ) from problem
    except (yaml.YAMLError, ValueError) as problem:
        # Its own words repeat the line, which may hold a password.
        mark = getattr(problem, "problem_mark", None)
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        what = str(problem.problem) if isinstance(problem, Twice | TooMuch) else "is no YAML"
        raise InvalidConfig(str(path), f"{what}{where}", hint="Mend it; quote texts with special characters.") from None
    if not isinstance(document, dict):
        raise InvalidConfig(str(path), "holds no mapping", hint="Start from `tripstore init`.")
    refuse_unfit_texts(document)
    return document


def refuse_unfit_texts(value: object, key: str = "") -> None:
    """Refuse what no file, host or server could be given, by the key that it stands under."""
    if key.count(".") > DEPTH_MAX:
        raise InvalidConfig(key.partition(".")[0], f"is nested deeper than {DEPTH_MAX} levels", hint="Write it flat.")
    if isinstance(value, Mapping):
        for name, inner in value.items():
            refuse_unfit_texts(name if isinstance(name, str) else "", key)
            place = name if isinstance(name, str) and name.isidentifier() else "…"
            refuse_unfit_texts(inner, f"{key}.{place}" if key else place)
    elif isinstance(value, list):
        for inner in value:
            refuse_unfit_texts(inner, f"{key}.…")
    elif isinstance(value, str) and (len(value) > TEXT_MAX or not _is_fit(value)):
        reason = f"a text of {len(value)} characters has a NUL, half a surrogate, or is longer than {TEXT_MAX:,}"
        raise InvalidConfig(key or "a key", reason, hint="Write a shorter text of whole characters.")


def _is_fit(text: str) -> bool:
    return "\0" not in text and not any("\ud800" <= each <= "\udfff" for each in text)


def parse_config(document: Mapping[str, Any], folder: Path) -> DatastoreConfig:
    """Check a document in full and return the configuration."""
    document = resolve_references(document, folder)
    refuse_unknown("", document, KEYS)
    for key in ("datastore", "shards", "clusters"):
        if key not in document:
            raise InvalidConfig(key, "is missing", hint=f"Add {key}; `tripstore init` writes an example.")
    datastore = _datastore_name(document["datastore"])
    clusters = _clusters(document["clusters"], folder)
    return DatastoreConfig(
        datastore=datastore,
        shards=_whole("shards", document["shards"], 1, SHARDS_MAX),
        clusters=clusters,
        control=_control(document, clusters, folder),
        indexes=load_definitions(document.get("indexes"), folder, datastore),
        max_body_bytes=_whole(
            "max_body_bytes", document.get("max_body_bytes", DEFAULT_MAX_BODY_BYTES), 1, 16 * 1024 * 1024 - 1
        ),
        triggers=_triggers(document.get("triggers")),
        tls=_tls(document.get("tls"), folder),
        buffer=None if document.get("buffer") is None else section("buffer", BufferConfig, document["buffer"]),
        **{name: section(name, struct, document.get(name)) for name, struct in _SECTIONS.items()},
    )


def refuse_unknown(prefix: str, mapping: Mapping[Any, Any], known: tuple[str, ...]) -> None:
    """Refuse keys that are not known, with the one that was meant."""
    for key in mapping:
        if key not in known:
            near = get_close_matches(key, known, n=1) if isinstance(key, str) else []
            hint = f"Did you mean {prefix}{near[0]}?" if near else f"Known keys: {', '.join(known)}."
            name = key if isinstance(key, str) and key.isidentifier() else shown_setting(key)
            raise InvalidConfig(f"{prefix}{name}", "is no known key", hint=hint)


def _datastore_name(value: object) -> str:
    if not isinstance(value, str) or not _DATASTORE_NAME.fullmatch(value):
        raise InvalidConfig(
            "datastore",
            f"{shown_setting(value)} is no datastore name",
            hint="Use lower-case letters, digits and _, like trips.",
        )
    return value


def _whole(key: str, value: object, low: int, high: int) -> int:
    if type(value) is not int or not low <= value <= high:
        raise InvalidConfig(
            key, f"{shown_setting(value)} is no whole number from {low} to {high}", hint=f"Write e.g. {low}."
        )
    return value


def _clusters(value: object, folder: Path) -> tuple[ClusterConfig, ...]:
    if not isinstance(value, dict) or not value:
        raise InvalidConfig(
            "clusters", f"{shown_setting(value)} names no cluster", hint="Write {a: {primary: mysql://…}}."
        )
    clusters = tuple(_cluster(name, entry, folder) for name, entry in value.items())
    primaries = [_address(cluster.primary) for cluster in clusters]
    for cluster in clusters:
        if primaries.count(_address(cluster.primary)) > 1:
            raise InvalidConfig(
                f"clusters.{cluster.name}.primary",
                f"{cluster.primary} is the primary of two clusters",
                hint="Give each cluster a server of its own.",
            )
    return clusters


def _address(url: NodeUrl) -> tuple[str, int, str]:
    return url.host, url.port, url.folder


def _cluster(name: object, entry: object, folder: Path) -> ClusterConfig:
    if not isinstance(name, str) or not _CLUSTER_NAME.fullmatch(name):
        raise InvalidConfig(
            "clusters", f"{shown_setting(name)} is no cluster name", hint="Use up to 32 letters, digits, - and _."
        )
    key = f"clusters.{name}"
    if not isinstance(entry, dict) or "primary" not in entry:
        raise InvalidConfig(f"{key}.primary", "is missing", hint="Add primary: mysql://user:password@host:port.")
    refuse_unknown(f"{key}.", entry, ("primary", "replicas"))
    replicas = entry.get("replicas") or []
    if not isinstance(replicas, list):
        raise InvalidConfig(
            f"{key}.replicas", f"{shown_setting(replicas)} is no list", hint="Write replicas: [mysql://…]."
        )
    return ClusterConfig(
        name=name,
        primary=_node(f"{key}.primary", entry["primary"], folder),
        replicas=tuple(_node(f"{key}.replicas[{n}]", url, folder) for n, url in enumerate(replicas)),
    )


def _node(key: str, text: object, folder: Path) -> NodeUrl:
    url = parse_node_url(key, text)
    if url.engine == "sqlite":
        return NodeUrl(engine="sqlite", folder=str((folder / url.folder).resolve()))
    if url.database:
        raise InvalidConfig(key, f"names the database {url.database!r}", hint="Leave it out: each shard is one.")
    return url


def _triggers(value: object) -> TriggerConfig:
    """Read `triggers`, of whose settings one is an address."""
    found: TriggerConfig
    if not isinstance(value, dict) or value.get("coordinator") is None:
        found = section("triggers", TriggerConfig, value)
        return found
    others = {key: given for key, given in value.items() if key != "coordinator"}
    coordinator = parse_zookeeper_url("triggers.coordinator", value["coordinator"])
    found = section("triggers", TriggerConfig, others)
    return replace(found, coordinator=coordinator)


def _tls(value: object, folder: Path) -> TlsConfig:
    """Read `tls`. Verifying a host name needs TLS, and there is no TLS without a certificate authority."""
    found = _with_files(section("tls", TlsConfig, value), folder)
    if isinstance(value, dict) and value.get("verify_hostname") is True and found.ca is None:
        hint = "Name the authority's certificate as tls.ca; without it connections are not encrypted at all."
        raise InvalidConfig("tls.verify_hostname", "is true, and there is no tls.ca", hint=hint)
    return found


def _with_files(tls: TlsConfig, folder: Path) -> TlsConfig:
    """Look for the files now: the driver would complain at the first call, and name none of them."""
    paths = {name: folder / given for name in ("ca", "cert", "key") if (given := getattr(tls, name)) is not None}
    for name, path in paths.items():
        if not _is_file(path):
            given = getattr(tls, name)
            named = shown_setting(given) if isinstance(given, Referenced) else repr(str(path))
            raise InvalidConfig(f"tls.{name}", f"{named} is no file", hint="Name an existing PEM file.")
    if tls.cert is not None and tls.ca is None:
        hint = "Name the authority's certificate; without it the server is not verified."
        raise InvalidConfig("tls.ca", "is missing beside tls.cert", hint=hint)
    ca, cert, key = (str(paths[name]) if name in paths else None for name in ("ca", "cert", "key"))
    return replace(tls, ca=ca, cert=cert, key=key)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that is too long
        return False


def _control(document: Mapping[str, Any], clusters: tuple[ClusterConfig, ...], folder: Path) -> NodeUrl:
    """Where the control database is: by default on the first cluster."""
    if document.get("control") is None:
        return clusters[0].primary
    url = parse_node_url("control", document["control"])
    if url.engine == "sqlite":
        return NodeUrl(engine="sqlite", folder=str((folder / url.folder).resolve()))
    check_database(url)
    return url


def section(name: str, struct: type[Any], value: object) -> Any:
    """Check the settings of a section against its struct, whose fields all have defaults."""
    if value is None:
        return struct()
    if not isinstance(value, dict):
        raise InvalidConfig(name, f"{shown_setting(value)} is no mapping", hint=f"Write {name}: {{…}}.")
    known = {entry.name: entry.default for entry in fields(struct)}
    refuse_unknown(f"{name}.", value, tuple(known))
    return struct(**{key: _setting(f"{name}.{key}", known[key], given) for key, given in value.items()})


def _setting(key: str, default: object, given: object) -> object:
    """Check one setting against the type of its default."""
    if isinstance(default, bool):
        if type(given) is not bool:
            raise InvalidConfig(
                key, f"{shown_setting(given)} is neither true nor false", hint=f"Write {default}.".lower()
            )
        return given
    if isinstance(default, int):
        highest = 2**50 if key.endswith("bytes") else 1_000_000
        return _whole(key, given, 0 if key.endswith("overflow") or key.startswith("prune.") else 1, highest)
    if isinstance(default, float):
        if not isinstance(given, int | float) or type(given) is bool or not 0 < given < 86_400:
            raise InvalidConfig(
                key, f"{shown_setting(given)} is no number of seconds", hint=f"The default is {default}."
            )
        return float(given)
    if isinstance(default, tuple):
        if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
            raise InvalidConfig(key, f"{shown_setting(given)} is no list of names", hint="Write [one, two].")
        return tuple(given)
    if given is not None and not isinstance(given, str):
        raise InvalidConfig(key, f"{shown_setting(given)} is no text", hint="Name a file.")
    return given


def resolve_references(value: Any, folder: Path) -> Any:
    """Replace ${NAME} and ${file:path} in every text of a document."""
    if isinstance(value, Mapping):
        return {key: resolve_references(inner, folder) for key, inner in value.items()}
    if isinstance(value, list):
        return [resolve_references(inner, folder) for inner in value]
    if isinstance(value, str):
        # Inside a URL a password's own @ and / must not be taken for the URL's.
        escape = partial(quote, safe="") if "://" in value and not value.startswith("sqlite:") else str
        found, references = _REFERENCE.subn(lambda match: escape(_referenced(match, folder)), value)
        return Referenced(found) if references or isinstance(value, Referenced) else found
    return value


def _referenced(match: re.Match[str], folder: Path) -> str:
    name = match.group(2)
    if match.group(1):
        try:
            return (folder / name).read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as problem:
            reason = problem.strerror if isinstance(problem, OSError) else "it is no text"
            raise InvalidConfig(
                match.group(0), f"cannot be read ({reason})", hint="Create the file or mend its path."
            ) from None
    try:
        return os.environ[name]
    except KeyError:
        raise InvalidConfig(match.group(0), "is not set", hint=f"export {name}=… before you start.") from None
