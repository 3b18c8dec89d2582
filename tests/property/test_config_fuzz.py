"""Whatever stands in a configuration, it is read or refused by our own errors, quickly, and without a password."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemaless_core import SchemalessError
from tests.layouts import document
from tests.scale import scaled
from tripstore.config import load_config
from tripstore.errors import TripstoreError

SECRET = "S3cr3t"
VALID: dict[str, Any] = {
    "datastore": "trips",
    "shards": 4,
    "clusters": {"a": {"primary": f"mysql://app:{SECRET}@db1:3306", "replicas": [f"mysql://app:{SECRET}@db2"]}},
    "control": "sqlite:///control",
    "indexes": [
        {"table": "by_who", "column_defs": [{"column_key": "BASE", "fields": [{"field": "a", "type": "UUID"}]}]}
    ],
    "max_body_bytes": 1000,
    "deadlines": {"put_seconds": 0.5},
    "pool": {"size": 3, "overflow": 0},
    "triggers": {"attempts": 3, "coordinator": f"zookeeper://app:{SECRET}@zk1:2181,zk2/rides"},
    "tls": {"verify_hostname": False},
    "legacy": {"postgres": f"postgresql://app:{SECRET}@db3/rides", "layout": document(), "log_days": 3},
    "mirror": {"max_lag_seconds": 1.0},
    "shadow": {"share": 0.5, "ignores": [{"reason": "r", "owner": "o", "until": date(2027, 3, 31), "path": "a"}]},
    "backfill": {"verify": 0},
    "cutover": {},
}
NASTY = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.just(10**4999),
    st.floats(),
    st.text(max_size=20),
    st.dates(),
    st.binary(max_size=4),
    st.sampled_from(
        [
            "", "\0", "a\0b", "\ud800", "x" * 5000, "x" * 100_000, "../../etc/passwd", "/dev/null", "/", ".", "~",
            "${HOME}", "${NOT_SET}", "${}", "${\0}", "${\ud800}", "${file:/}", "${file:\0}", "${file:x}",
            "mysql://", "mysql://u@[::1", "mysql://u:p@h:99999", "mysql://u@\udcff", "mysql://u@h:٣", "sqlite:///\0",
            "sqlite:///" + "x" * 5000, "postgresql://h/d?sslmode=wrong", "postgresql://h/d?sslrootcert=\0",
            "postgresql://[h/d", "postgresql://h/d?options=-c%20x", "postgresql://%zz/d", "host=h password=S3cr3t",
            "\u202eevil", "\x1b[2J", "é" * 40, "A" * 64, "public.", '"', '"a".""', "pg_catalog.pg_class",
        ]
    ),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.one_of(st.text(max_size=5), st.integers(), st.none()), st.none(), max_size=2),
)  # fmt: skip
#: What becomes of one place of the document.
CHANGES = ("replace", "remove", "add a key", "wrap", "deepen")
SEEN: Counter[str] = Counter()


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for key, each in inner for place in places(each, (*at, key)))]


PLACES = places(VALID)[1:]


def changed(place: tuple[Any, ...], how: str, value: Any) -> dict[str, Any]:
    """The document with one place changed."""
    whole = copy.deepcopy(VALID)
    holder: Any = whole
    for key in place[:-1]:
        holder = holder[key]
    match how:
        case "remove":
            del holder[place[-1]]
        case "add a key" if isinstance(holder[place[-1]], dict):
            holder[place[-1]][value if isinstance(value, str | int | None) else "x"] = value
        case "wrap":
            holder[place[-1]] = [holder[place[-1]]]
        case "deepen":
            for _ in range(400):
                holder[place[-1]] = {"x": holder[place[-1]]}
        case _:
            holder[place[-1]] = value
    return whole


def read(source: Any) -> None:
    """Our own errors are an answer; all others fail the test."""
    told = ""
    try:
        load_config(source)
        SEEN["read"] += 1
    except (SchemalessError, TripstoreError) as refused:
        SEEN["refused"] += 1
        told = f"{refused} {refused.hint}"
    assert SECRET not in told


def told(before: Counter[str]) -> str:
    """What was met since then, for the summary of the run."""
    return ", ".join(f"{count} {kind}" for kind, count in sorted((SEEN - before).items())) + ", no foreign exception"


@settings(max_examples=scaled(7_000, short=400), deadline=None, suppress_health_check=list(HealthCheck))
@given(place=st.sampled_from(PLACES), how=st.sampled_from(CHANGES), value=NASTY)
def fuzz_documents(place: tuple[Any, ...], how: str, value: Any) -> None:
    read(changed(place, how, value))


def test_a_document_with_one_place_changed(record_property: Callable[[str, object], None]) -> None:
    before = SEEN.copy()
    fuzz_documents()
    record_property("counts", told(before))


def test_a_file_with_some_bytes_changed(
    tmp_path_factory: pytest.TempPathFactory, record_property: Callable[[str, object], None]
) -> None:
    before = SEEN.copy()
    fuzz_files(tmp_path_factory)
    record_property("counts", told(before))


@settings(max_examples=scaled(3_000, short=150), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def fuzz_files(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    text = yaml.safe_dump(VALID).encode()
    at = data.draw(st.integers(0, len(text)))
    length = data.draw(st.integers(0, 20))
    put = data.draw(
        st.one_of(st.binary(max_size=8), st.sampled_from([b"&a ", b"*a", b"<<: ", b"!!python/none ", b"? ["]))
    )
    file = _folder(tmp_path_factory) / "tripstore.yaml"
    file.write_bytes(text[:at] + put + text[at + length :])
    read(file)


def test_most_kinds_of_answer_were_met() -> None:
    """The fuzz is one only when it meets both; and what it starts from is right."""
    load_config(VALID)
    for how in CHANGES:
        read(changed(("datastore",), how, 5))
    assert SEEN["refused"] > 0


def test_control_a_foreign_exception_fails_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("schemaless_core.config.refuse_unfit_texts", lambda _value, _key="": None)
    with pytest.raises(ValueError, match="null byte"):
        read(changed(("control",), "replace", "sqlite:///\0"))


def _folder(factory: pytest.TempPathFactory) -> Path:
    if not _FOLDERS:
        _FOLDERS.append(factory.mktemp("fuzz"))
    return _FOLDERS[0]


_FOLDERS: list[Path] = []
