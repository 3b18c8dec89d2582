"""dlt, which loads tables of any database into any other: as its documentation says, with the tables of the company."""

from __future__ import annotations

import logging
import os
import tempfile
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from tripstore.demo.legacy.urls import sqlalchemy_url
from tripstore.local.binlog import BinlogServer

#: And the column that says of which trip a row is.
TABLES = {"trips": "id", "billing_attempts": "trip_id", "trip_notes": "trip_id", "fare_adjustments": "trip_id"}
DATASET = "loaded"


def load_with_dlt(legacy: str, store: BinlogServer, trips: int) -> int:
    """Load the first trips with their children; return how many rows were loaded."""
    os.environ["RUNTIME__DLTHUB_TELEMETRY"] = "false"
    os.environ["RUNTIME__LOG_LEVEL"] = "ERROR"
    dlt, source = import_module("dlt"), import_module("dlt.sources.sql_database")
    logging.getLogger("dlt").setLevel(logging.ERROR)

    def first_trips(query: Any, table: Any) -> Any:
        return query.where(table.c[TABLES[table.name]] <= trips)

    tables = [
        source.sql_table(
            credentials=sqlalchemy_url(legacy).render_as_string(hide_password=False),
            schema="public",
            table=name,
            query_adapter_callback=first_trips,
        )
        for name in TABLES
    ]
    login = urlsplit(store.url)
    target = f"mysql+pymysql://{login.username}:{login.password}@{login.hostname}:{login.port}/{DATASET}"
    store.query(f"CREATE DATABASE {DATASET}")
    with tempfile.TemporaryDirectory() as folder:
        pipeline = dlt.pipeline(
            "trips",
            destination=dlt.destinations.sqlalchemy(target),
            dataset_name=DATASET,
            pipelines_dir=folder,
        )
        pipeline.run(tables)
        trace: Any = pipeline.last_trace
        counts = trace.last_normalize_info.row_counts
    return sum(counts[name] for name in TABLES)
