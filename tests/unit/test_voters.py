"""Which clusters are voters, by the record of their newest promotion."""

from __future__ import annotations

import pytest

from schemaless_core.promotion.voters import _may_vote


@pytest.mark.parametrize(
    ("record", "may"),
    [
        ({"is_done": True, "is_leased": True}, True),
        ({"is_done": True, "is_leased": False, "leads_leased": True}, True),
        ({"is_done": False, "is_leased": False, "was_leased": True}, True),
        ({"is_done": True, "is_leased": False, "was_leased": True}, False),
        ({"is_done": True}, False),
        ({}, False),
    ],
    ids=[
        "leased",
        "its leader is leased",
        "not done, and was leased",
        "switched off",
        "never leased",
        "never promoted",
    ],
)
def test_i9_a_cluster_is_a_voter_while_a_server_of_it_may_have_a_lease(record: dict[str, object], may: bool) -> None:
    assert _may_vote(record) is may
