"""What exists is in its reference: keys, metrics, log events, errors, commands, words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import click
import pytest

import schemaless_core.errors as core_errors
from schemaless_core.config import BufferConfig, ClusterConfig, DatastoreConfig
from tests.documents import DOCS, REFERENCE, ROOT, rows
from tripstore.cli.reference import commands
from tripstore.cli.root import root
from tripstore.config import BackfillConfig, LegacyLimits, MirrorConfig, ShadowConfig, ThrottleConfig
from tripstore.engines.backfill.errors import BackfillError
from tripstore.engines.validation.errors import ValidationError
from tripstore.errors import TripstoreError
from tripstore.http.settings import HttpLimits
from tripstore.thresholds import CutoverSettings

PACKAGES = ("schemaless_core", "backfill", "validation", "tripstore")


def config_keys(struct: type[Any] = DatastoreConfig, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Every key with its default; sections by their own keys."""
    if not prefix:
        yield from ((f"clusters.<name>.{entry.name}", ...) for entry in fields(ClusterConfig) if entry.name != "name")
    for entry in fields(struct):
        default = entry.default_factory() if callable(entry.default_factory) else entry.default
        if entry.name == "buffer":  # there is none by default
            default = BufferConfig()
        if is_dataclass(default):
            yield entry.name, ...
            yield from config_keys(type(default), f"{prefix}{entry.name}.")
        else:
            yield f"{prefix}{entry.name}", default


def facade_keys() -> Iterator[tuple[str, object]]:
    """The keys that the core does not know."""
    yield from (("legacy", ...), ("legacy.postgres", ...), ("legacy.layout", ...))
    yield from config_keys(LegacyLimits, "legacy.")
    sections = {
        "mirror": MirrorConfig,
        "shadow": ShadowConfig,
        "backfill": BackfillConfig,
        "throttle": ThrottleConfig,
        "cutover": CutoverSettings,
    }
    for section, struct in sections.items():
        yield section, ...
        yield from config_keys(struct, f"{section}.")
    yield "shadow.ignores", ...
    yield from (("http", ...), ("http.tls_certificate", ...), ("http.tls_key", ...), ("http.tokens", ...))
    yield from config_keys(HttpLimits, "http.")


CONFIG_KEYS = [*config_keys(), *facade_keys()]


@pytest.mark.parametrize(("key", "default"), CONFIG_KEYS)
def test_every_key_of_the_configuration_is_in_its_reference_with_its_default(key: str, default: object) -> None:
    described = {row[0]: row[1:] for row in rows(REFERENCE / "configuration.md")}

    assert f"`{key}`" in described
    if isinstance(default, bool | int | float) or (isinstance(default, str) and default):
        assert described[f"`{key}`"][0] == f"`{default}`".lower()


def test_the_reference_describes_no_key_that_does_not_exist() -> None:
    known = {f"`{key}`" for key, _default in CONFIG_KEYS}
    described = {row[0] for row in rows(REFERENCE / "configuration.md") if re.fullmatch(r"`[a-z_.<>]+`", row[0])}

    assert described == known


def test_every_metric_is_in_its_reference_with_its_labels() -> None:
    described = {row[0]: row[2] for row in rows(REFERENCE / "metrics.md") if len(row) == 4}
    source = "".join(path.read_text() for package in PACKAGES for path in (ROOT / package).rglob("metrics.py"))
    found = re.findall(r'"((?:schemaless|tripstore)_\w+)",\s*"[^"]+"(?:,\s*\[([^\]]*)\])?', source)

    assert found
    for metric, labels in found:
        assert re.findall(r"\w+", described[f"`{metric}`"]) == re.findall(r"\w+", labels), metric


def test_every_log_event_is_in_its_reference_and_no_other() -> None:
    sources = [path.read_text() for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    # Named where it is logged, or handed to the one function of a file that logs.
    named = re.compile(r'(?:"event": |_log_\w+\()"([a-z_]+\.[a-z_]+)"')
    events = {event for source in sources for event in named.findall(source)}

    assert events
    assert {row[0].strip("`") for row in rows(REFERENCE / "log-events.md") if row[0].startswith("`")} == events


def test_every_error_is_in_its_reference() -> None:
    page = (REFERENCE / "errors.md").read_text()
    kinds = [kind for kind in vars(core_errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    described = {row[0] for row in rows(REFERENCE / "errors.md")}

    for kind in kinds:
        assert f"`{kind.__name__}`" in described
        assert re.search(rf"^[│├└─ ]*{kind.__name__}\b", page, re.MULTILINE), f"{kind.__name__} is not in the tree"
    for base in (TripstoreError, BackfillError, ValidationError):
        assert f"`{base.__name__}`" in page


def test_every_command_is_in_its_reference() -> None:
    page = (REFERENCE / "cli.md").read_text()

    for _command, context in commands(root, click.Context(root, None, "tripstore")):
        assert f"## `{context.command_path}`\n" in page


#: The words that the project was designed with; each is explained in a sentence.
WORDS = """
cell, row key, column name, ref key, tombstone, shard, added id, location, node, cluster, topology, epoch, index, entry,
alias, buffer, trigger, group, parked cell, legacy store, layout, capture, authority, mirror, relay, shadow read,
mismatch, phase, backfill, chunk, checkpoint, quarantine, diff, repair, evidence
"""


def test_every_word_of_the_design_is_in_the_glossary_once() -> None:
    rows = re.findall(r"^\| \*\*(.+?)\*\* \| (.+) \|$", (DOCS / "glossary.md").read_text(), re.MULTILINE)
    explained = [word for words, said in rows if len(said) > 10 for word in words.split(", ")]

    assert len(explained) == len(set(explained))
    assert {" ".join(word.split()) for word in WORDS.split(",")} <= set(explained)
