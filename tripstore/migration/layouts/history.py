"""The layouts that were in force, as Postgres knows them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from tripstore.backends.postgres.layout.layout import Layout
from tripstore.backends.postgres.layout.reading import load_layout

#: The latest first. Before there was a layout in force, the one that capture was installed by was.
_HISTORY = """
SELECT l.document FROM (
    SELECT h.layout AS digest, max(h.epoch) AS epoch FROM tripstore.authority_history h
    WHERE h.layout IS NOT NULL AND h.target IS NULL GROUP BY 1
    UNION ALL SELECT a.layout, a.epoch FROM tripstore.authority a WHERE a.layout IS NOT NULL
    UNION ALL SELECT l.digest, -1 FROM tripstore.capture c JOIN tripstore.layout l ON l.number = c.layout
) AS known JOIN tripstore.layout l USING (digest)
GROUP BY l.number, l.document ORDER BY max(known.epoch) DESC, l.number DESC
"""
_HAS = """
SELECT EXISTS (SELECT FROM pg_catalog.pg_attribute
    WHERE attrelid = pg_catalog.to_regclass('tripstore.authority') AND attname = 'layout')
"""


def layouts_in_force(ask: Callable[[str, tuple[Any, ...]], Sequence[Sequence[Any]]], datastore: str) -> list[Layout]:
    """All of them, the latest first; none before anything was installed."""
    if not ask(_HAS, ())[0][0]:
        return []
    return [load_layout(json.loads(document), datastore) for (document,) in ask(_HISTORY, ())]
