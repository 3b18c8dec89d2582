"""Node URL → node: the one place that knows all engines."""

from __future__ import annotations

from schemaless_core.config import DatastoreConfig
from schemaless_core.engine.base import Node
from schemaless_core.engine.mysql.node import MySQLNode
from schemaless_core.engine.sqlite.node import SQLiteNode
from schemaless_core.urls import NodeUrl


def open_node(url: NodeUrl, config: DatastoreConfig) -> Node:
    """Return a node; it connects when it is first asked."""
    if url.engine == "sqlite":
        return SQLiteNode(url, config)
    return MySQLNode(url, config)
