"""A small company whose child rows get their ids from sequences: posts, their comments, and votes that never change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from uuid import UUID, uuid4

from tests.facades import Migration, migration
from tests.stores import Stores
from tripstore.backends.postgres.layout.layout import Layout
from tripstore.backends.postgres.layout.reading import load_layout
from tripstore.local.servers import LocalServers

#: `{id}`: the comments' own key.
TABLES = """
CREATE TABLE posts (id bigserial PRIMARY KEY, post_uuid uuid NOT NULL DEFAULT gen_random_uuid() UNIQUE, title text);
CREATE SEQUENCE vote_ids INCREMENT 10;
CREATE TABLE comments (
    id {id} PRIMARY KEY,
    post_id bigint NOT NULL REFERENCES posts (id) ON DELETE CASCADE,
    post_uuid uuid NOT NULL,
    text text,
    UNIQUE (post_id, id)
);
CREATE TABLE votes (
    id bigint PRIMARY KEY DEFAULT nextval('vote_ids'),
    post_id bigint NOT NULL REFERENCES posts (id) ON DELETE CASCADE,
    post_uuid uuid NOT NULL,
    points int,
    UNIQUE (post_id, id)
);
CREATE INDEX ON comments (post_uuid, id);
CREATE INDEX ON votes (post_uuid, id);
"""
SERIAL = "bigserial"

LAYOUT: dict[str, Any] = {
    "datastore": "talk",
    "row_key": {"table": "posts", "id": "id", "uuid": "post_uuid"},
    "columns": {
        "POST": {"table": "posts", "ref_key": {"version": "version"}, "fields": {"title": {"type": "string"}}},
        "COMMENT": {
            "table": "comments",
            "parent": {"column": "post_id"},
            "ref_key": {"column": "id", "version": "version"},
            "fields": {"text": {"type": "string"}},
        },
        "VOTE": {
            "table": "votes",
            "parent": {"column": "post_id"},
            "ref_key": {"column": "id"},
            "fields": {"points": {"type": "int"}},
        },
    },
}


def talk_layout(fields: Mapping[str, Any] | None = None) -> Layout:
    """`fields`: more of those of posts."""
    columns = LAYOUT["columns"]
    posts = {**columns["POST"], "fields": {**columns["POST"]["fields"], **(fields or {})}}
    return load_layout({**LAYOUT, "columns": {**columns, "POST": posts}}, "talk")


@contextmanager
def discussion(
    servers: LocalServers,
    stores: Stores,
    *,
    id_type: str = SERIAL,
    types: str = "",
    altered: str = "",
    fields: Mapping[str, Any] | None = None,
    **options: Any,
) -> Iterator[Migration]:
    """The company with capture, and a datastore beside it. Its tables are altered before capture comes."""
    tables = f"{types}{TABLES.format(id=id_type)}{altered}"
    with migration(servers, stores, wanted=talk_layout(fields), tables=tables, **options) as made:
        yield made


def post(made: Migration, **body: Any) -> UUID:
    """A row, put through the facade."""
    row_key = uuid4()
    made.store.put_cell(row_key, "POST", 1, body or {"title": "a"})
    return row_key


def number(ref_key: int) -> int:
    """The id of the comment that a ref key is of."""
    return talk_layout().columns["COMMENT"].split(ref_key)[0]


def comment_by_sql(made: Migration, row_key: UUID) -> int:
    """What a service of the company's inserts; the id that it got."""
    return comments_by_sql(made, row_key, 1)[0]


def comments_by_sql(made: Migration, row_key: UUID, count: int) -> list[int]:
    """Several that one session inserts."""
    found = made.legacy.sql(
        "INSERT INTO comments (post_id, post_uuid, text) SELECT id, post_uuid, 'by sql'"
        " FROM posts, generate_series(1, %s) WHERE post_uuid = %s RETURNING id",
        count,
        str(row_key),
    )
    return [int(row[0]) for row in found]


def parked(made: Migration) -> int:
    """Cells that the reverse mirror has set aside, or not passed."""
    ports = made.duo.ports
    return sum(ports.store.unmirrored(server) for server in ports.store.servers)
