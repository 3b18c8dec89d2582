"""The facade's sections of the configuration: checked in full, each complaint with its key and a way out."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from schemaless_core.config import PruneConfig
from schemaless_core.errors import InvalidConfig
from tests.legacy_databases import UNUSED
from tripstore.backends.postgres.ids.index import LEGACY_ID_INDEX
from tripstore.config import ThrottleConfig, load_config
from tripstore.engines.validation.compare import DifferenceClass

RULE: dict[str, Any] = {"reason": "rounded", "owner": "fares", "until": date(2027, 1, 1), "path": "fare"}


def document(**more: Any) -> dict[str, Any]:
    return {
        "datastore": "trips",
        "shards": 4,
        "clusters": {"a": {"primary": "sqlite:///a"}},
        "legacy": {"postgres": "postgresql://localhost/rides", "layout": UNUSED},
        **more,
    }


def test_without_the_sections_there_are_defaults() -> None:
    config = load_config(document())
    assert (config.shadow.share, config.mirror.max_lag_seconds, config.ignores) == (0.1, 0.05, ())


def test_a_limit_of_a_backfill_may_be_none() -> None:
    none = {"rate": 0, "verify": 0, "postgres_load_max": 0, "mirror_lag_seconds_max": 0, "replica_lag_cells_max": 0}
    found = load_config(document(backfill={**none, "processes": 3})).backfill
    assert {name: getattr(found, name) for name in none} == none
    assert (found.processes, found.parts) == (3, 64)


def test_what_jobs_slow_down_by_may_be_none_or_a_probe_with_its_limit() -> None:
    assert load_config(document()).throttle == ThrottleConfig(0, "", 0.0, 1.0)
    none = {"blocks_max": 0, "probe_seconds_max": 0}
    assert load_config(document(throttle=none)).throttle == ThrottleConfig()
    found = load_config(document(throttle={"probe": "SELECT 1", "probe_seconds_max": 0.05, "blocks_max": 2_000}))
    assert found.throttle == ThrottleConfig(2_000, "SELECT 1", 0.05, 1.0)


def test_what_the_control_database_has_may_be_kept_for_ever_and_as_long_as_gates_look_back() -> None:
    assert load_config(document()).core.prune == PruneConfig(jobs_days=90, counts_days=90, audit_days=0)
    assert load_config(document(prune={"counts_days": 8})).core.prune.counts_days == 8
    assert (
        load_config(document(prune={"counts_days": 0}, cutover={"evidence_hours": 9_000})).core.prune.counts_days == 0
    )


def test_a_rule_is_read() -> None:
    (rule,) = load_config(document(shadow={"ignores": [{**RULE, "class": "field"}]})).ignores
    assert (rule.owner, rule.path, rule.kind) == ("fares", "fare", DifferenceClass.FIELD)


def test_the_index_of_legacy_ids_comes_with_the_legacy_store() -> None:
    """resolve_id works in every phase."""
    assert LEGACY_ID_INDEX in [definition.name for definition in load_config(document()).core.indexes]
    alone = {key: value for key, value in document().items() if key != "legacy"}
    assert load_config(alone).core.indexes == ()


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ({"shadow": {"share": 1.5}}, "shadow.share"),
        ({"shadow": {"share": True}}, "shadow.share"),
        ({"shadow": []}, "shadow"),
        ({"shadow": {"shares": 1}}, "shadow.shares"),
        ({"shadow": {"ignores": RULE}}, "shadow.ignores"),
        ({"shadow": {"ignores": ["fare"]}}, "shadow.ignores[0]"),
        ({"shadow": {"ignores": [RULE, {**RULE, "until": "soon"}]}}, "shadow.ignores[1].until"),
        ({"shadow": {"ignores": [{**RULE, "class": "odd"}]}}, "shadow.ignores[0].class"),
        ({"shadow": {"ignores": [{**RULE, "path": 5}]}}, "shadow.ignores[0].path"),
        ({"shadow": {"ignores": [{key: RULE[key] for key in ("reason", "until")}]}}, "shadow.ignores[0].owner"),
        ({"shadow": {"ignores": [{**RULE, "path": "*"}]}}, "shadow.ignores[0]"),
        ({"mirror": {"max_lag_seconds": -1}}, "mirror.max_lag_seconds"),
        ({"backfill": []}, "backfill"),
        ({"backfill": {"processes": 0}}, "backfill.processes"),
        ({"backfill": {"rate": -1}}, "backfill.rate"),
        ({"backfill": {"rate": False}}, "backfill.rate"),
        ({"backfill": {"verify": 1.5}}, "backfill.verify"),
        ({"backfill": {"chunk_seconds": 0}}, "backfill.chunk_seconds"),
        ({"throttle": []}, "throttle"),
        ({"throttle": {"blocks_max": -1}}, "throttle.blocks_max"),
        ({"throttle": {"blocks": 1}}, "throttle.blocks"),
        ({"throttle": {"probe": 5}}, "throttle.probe"),
        ({"throttle": {"probe_seconds_max": 0.05}}, "throttle.probe"),
        ({"throttle": {"probe": "SELECT 1", "probe_seconds_max": 1}}, "throttle.probe_deadline_seconds"),
        ({"throttle": {"probe": "SELECT 1", "probe_deadline_seconds": 0}}, "throttle.probe_deadline_seconds"),
        ({"mirror": {"lag": 1}}, "mirror.lag"),
        ({"cutover": {"lag_changes_max": 1.5}}, "cutover.lag_changes_max"),
        ({"cutover": {"not_compared_share_max": 1.5}}, "cutover.not_compared_share_max"),
        ({"prune": {"counts_days": 7}}, "prune.counts_days"),
        ({"prune": {"jobs_days": -1}}, "prune.jobs_days"),
        ({"cutover": {"evidence_hours": 2200}}, "prune.counts_days"),
        ({"cutover": {"incomparable": "get_history"}}, "cutover.incomparable"),
        ({"cutover": {"incomparable": ["put_cell"]}}, "cutover.incomparable"),
    ],
)
def test_what_is_wrong_is_named_with_a_way_out(more: dict[str, Any], key: str) -> None:
    with pytest.raises(InvalidConfig) as raised:
        load_config(document(**more))
    assert raised.value.key == key
    assert raised.value.hint


@pytest.mark.parametrize("key", ["mirror", "shadow", "throttle", "cutover"])
def test_a_section_about_two_stores_needs_the_second(key: str) -> None:
    alone = {name: value for name, value in document(**{key: {}}).items() if name != "legacy"}
    with pytest.raises(InvalidConfig) as raised:
        load_config(alone)
    assert raised.value.key == key


def test_no_company_defines_the_index_of_legacy_ids() -> None:
    mine = {
        "table": LEGACY_ID_INDEX,
        "column_defs": [{"column_key": "BASE", "fields": [{"field": "a", "type": "int"}]}],
    }
    with pytest.raises(InvalidConfig, match="legacy_ids"):
        load_config(document(indexes=[mine]))
