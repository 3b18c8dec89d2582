"""The section `legacy:` is checked like the rest: complaints name key, value and fix, and show no password."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from psycopg2.extensions import parse_dsn

from schemaless_core import InvalidConfig
from schemaless_core.config import DeadlineConfig, PoolConfig
from tests.layouts import document
from tripstore.backends.postgres.errors import InvalidLayout
from tripstore.backends.postgres.wire.settings import LegacySettings
from tripstore.config import LegacyConfig, LegacyLimits, load_config

SECRET = "S3cr3t"
URL = f"postgresql://app:{SECRET}@db1:5432/rides"


def config(**legacy: Any) -> dict[str, Any]:
    section = {"postgres": URL, "layout": document()} | legacy
    return {"datastore": "trips", "shards": 4, "clusters": {"a": {"primary": "sqlite:///a"}}, "legacy": section}


def loaded(**legacy: Any) -> LegacyConfig:
    found = load_config(config(**legacy)).legacy
    assert found is not None
    return found


def complaint(**legacy: Any) -> InvalidConfig:
    with pytest.raises(InvalidConfig) as refused:
        load_config(config(**legacy))
    assert refused.value.hint
    assert SECRET not in str(refused.value) + repr(refused.value)
    return refused.value


def test_two_keys_are_enough_and_the_rest_has_defaults() -> None:
    legacy = loaded()

    assert legacy.layout.parent.name == "BASE"
    assert legacy.limits == LegacyLimits()
    assert legacy.limits.deadlines == DeadlineConfig(put_seconds=2.0, batch_cell_seconds=0.01)
    assert legacy.limits.pool == PoolConfig()


def test_the_defaults_are_those_of_the_legacy_store_itself() -> None:
    limits, settings = LegacyLimits(), LegacySettings()

    assert (limits.deadlines, limits.pool) == (settings.deadlines, settings.pool)
    for name in ("lock_seconds", "statement_seconds", "idle_transaction_seconds"):
        assert getattr(limits, name) == getattr(settings, name)


def test_a_configuration_without_the_section_has_no_legacy_store() -> None:
    without = config()
    del without["legacy"]

    assert load_config(without).legacy is None


def test_no_password_is_shown() -> None:
    legacy = loaded()

    assert legacy.postgres.text == URL
    assert str(legacy.postgres) == "postgresql://app@db1:5432/rides"
    assert SECRET not in repr(legacy) + str(legacy)


def test_a_password_comes_from_the_environment_whatever_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", "p@ss/w:rd?")

    legacy = loaded(postgres="postgresql://app:${DB_PASSWORD}@db1/rides?sslmode=require")

    assert legacy.postgres.text == "postgresql://app:p%40ss%2Fw%3Ard%3F@db1/rides?sslmode=require"
    assert str(legacy.postgres) == "postgresql://app@db1/rides"


def test_the_layout_is_found_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "layout.yaml").write_text(yaml.safe_dump(document()))
    (tmp_path / "tripstore.yaml").write_text(yaml.safe_dump(config(layout="tables/layout.yaml")))

    found = load_config(tmp_path / "tripstore.yaml").legacy

    assert found is not None
    assert found.layout.digest == loaded().layout.digest


@pytest.mark.parametrize(
    ("legacy", "key", "words"),
    [
        ({"postgres": None}, "legacy.postgres", "is missing"),
        ({"layout": None}, "legacy.layout", "is missing"),
        ({"layout": 7}, "legacy.layout", "7 is no file"),
        ({"postgre": "x"}, "legacy.postgre", "Did you mean legacy.postgres?"),
        ({"postgres": 5432}, "legacy.postgres", "postgresql://user:password@host:port/database"),
        ({"postgres": f"mysql://a:{SECRET}@db1/rides"}, "legacy.postgres", "is no URL of Postgres"),
        ({"postgres": f"postgresql+psycopg2://a:{SECRET}@db1/rides"}, "legacy.postgres", "Leave out +psycopg2"),
        ({"postgres": f"postgresql://a:{SECRET}@db1"}, "legacy.postgres", "names no database"),
        ({"postgres": f"postgresql://a:{SECRET}@[db1/rides"}, "legacy.postgres", "%40"),
        ({"postgres": f"{URL}?options=-cwork_mem%3D1"}, "legacy.postgres", "sets options"),
        ({"lock_seconds": 0}, "legacy.lock_seconds", "The default is 1.0"),
        ({"log_days": "7"}, "legacy.log_days", "is no whole number"),
        ({"pool_size": 0}, "legacy.pool_size", "is no whole number"),
        ({"truncate": "never"}, "legacy.truncate", "neither refuse nor allow"),
        ({"truncate": True}, "legacy.truncate", "is no text"),
        ({"direct_writers": "maybe"}, "legacy.direct_writers", "neither reject nor warn"),
    ],
)
def test_what_cannot_be_is_named_with_a_fix(legacy: dict[str, Any], key: str, words: str) -> None:
    error = complaint(**legacy)

    assert error.key == key
    assert words in str(error)


def test_a_section_that_is_no_mapping_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"legacy: 'layout\.yaml' is no mapping"):
        load_config(config() | {"legacy": "layout.yaml"})


def test_a_layout_for_another_datastore_is_refused() -> None:
    with pytest.raises(InvalidLayout, match="'rides' is not the datastore of this configuration"):
        load_config(config(layout=document() | {"datastore": "rides"}))


def test_a_mistyped_section_is_recognised() -> None:
    with pytest.raises(InvalidConfig, match=r"Did you mean legacy\?"):
        load_config(config() | {"legasy": {}})


def test_a_pool_may_have_no_overflow() -> None:
    assert loaded(pool_overflow=0).limits.pool.overflow == 0


def test_files_of_tls_start_from_the_folder_of_the_configuration(tmp_path: Path) -> None:
    given = config(postgres=f"{URL}?sslmode=verify-full&sslrootcert=certs/ca.pem")
    (tmp_path / "tripstore.yaml").write_text(yaml.safe_dump(given))

    found = load_config(tmp_path / "tripstore.yaml").legacy

    assert found is not None
    assert parse_dsn(found.postgres.text)["sslrootcert"] == str(tmp_path / "certs/ca.pem")
    # The controls: an absolute path, the system's authorities, and a URL without files stay as they are.
    for same in ("sslrootcert=/etc/ca.pem", "sslrootcert=system", "sslmode=require"):
        assert loaded(postgres=f"{URL}?{same}").postgres.text == f"{URL}?{same}"
