"""Changesets and their discussion, after OpenStreetMap's API database. Tables in our words, rows made up."""

from __future__ import annotations

from tests.public.schema import PublicSchema, Sent

_TABLES = """
CREATE TABLE users (id bigserial PRIMARY KEY, email varchar NOT NULL UNIQUE, display_name varchar NOT NULL);
CREATE TABLE changesets (
    id bigserial PRIMARY KEY,
    user_id bigint NOT NULL REFERENCES users (id),
    created_at timestamp NOT NULL,
    min_lat int,
    max_lat int,
    min_lon int,
    max_lon int,
    closed_at timestamp NOT NULL,
    num_changes int NOT NULL DEFAULT 0
);
CREATE TABLE changeset_comments (
    id serial PRIMARY KEY,
    changeset_id bigint NOT NULL REFERENCES changesets (id),
    author_id bigint NOT NULL REFERENCES users (id),
    body text NOT NULL,
    created_at timestamp NOT NULL,
    visible boolean NOT NULL
);
CREATE TABLE changeset_tags (
    changeset_id bigint NOT NULL REFERENCES changesets (id),
    k varchar NOT NULL DEFAULT '',
    v varchar NOT NULL DEFAULT '',
    PRIMARY KEY (changeset_id, k)
);
CREATE TABLE changesets_subscribers (
    subscriber_id bigint NOT NULL REFERENCES users (id),
    changeset_id bigint NOT NULL REFERENCES changesets (id)
);
CREATE UNIQUE INDEX one_subscription ON changesets_subscribers (subscriber_id, changeset_id);
CREATE INDEX ON changesets_subscribers (changeset_id);
"""

_ROWS = """
INSERT INTO users (email, display_name) SELECT n || '@example.org', 'mapper ' || n FROM generate_series(1, 50) n;
INSERT INTO changesets (user_id, created_at, min_lat, max_lat, min_lon, max_lon, closed_at, num_changes)
SELECT 1 + n % 50, timestamp '2012-09-01' + n * interval '7.25 h', CASE WHEN n % 5 > 0 THEN n * 1000 - 900000000 END,
    CASE WHEN n % 5 > 0 THEN n * 1000 END, NULLIF(n % 7, 0), n, timestamp '2012-09-02' + n * interval '8 h', n % 400
FROM generate_series(1, {rows}) n;
INSERT INTO changeset_comments (changeset_id, author_id, body, created_at, visible)
SELECT 1 + n % {rows}, 1 + n % 50, 'Why? ' || chr(9731) || n, timestamp '2020-01-01' + n * interval '1 s', n % 9 > 0
FROM generate_series(1, {rows} * 6) n;
INSERT INTO changeset_tags SELECT 1 + n % {rows}, (ARRAY['comment', 'created_by', 'source'])[1 + n % 3], 'v' || n
FROM generate_series(1, {rows} * 2) n ON CONFLICT DO NOTHING;
INSERT INTO changesets_subscribers SELECT 1 + n % 50, 1 + n % {rows} FROM generate_series(1, {rows} * 2) n
ON CONFLICT DO NOTHING;
ANALYZE;
"""

OPENSTREETMAP = PublicSchema(
    name="openstreetmap",
    ddl=_TABLES,
    rows=_ROWS,
    tables=("changesets", "changeset_comments", "changesets_subscribers", "changeset_tags"),
    parent="changesets",
    traffic=(
        Sent("UPDATE changesets SET num_changes = num_changes + 7, closed_at = now() WHERE id % 4 = 0"),
        Sent("UPDATE changeset_comments SET visible = false WHERE id % 10 = 3"),
        Sent(
            "COPY changeset_comments (changeset_id, author_id, body, created_at, visible) FROM stdin",
            "1\t2\tcopied \\t tab\t2024-05-05 10:00:00.5\tt\n2\t2\t\t2024-05-05 10:00:00\tf\n",
        ),
        Sent("DELETE FROM changesets_subscribers WHERE subscriber_id = 4"),
        Sent("INSERT INTO changesets_subscribers VALUES (4, 1), (4, 2) ON CONFLICT DO NOTHING"),
        Sent(
            "INSERT INTO changeset_tags VALUES (1, 'comment', 'x') ON CONFLICT (changeset_id, k) DO UPDATE SET v = 'y'"
        ),
        Sent(
            "MERGE INTO changeset_tags t USING generate_series(1, 6) one ON t.changeset_id = one AND t.k = 'source' "
            "WHEN MATCHED THEN UPDATE SET v = 'merged' WHEN NOT MATCHED THEN INSERT VALUES (one, 'source', 'new')"
        ),
        Sent("DELETE FROM changeset_tags WHERE k = 'created_by' AND changeset_id % 3 = 0"),
        Sent(
            "INSERT INTO changesets (user_id, created_at, closed_at) SELECT 3, now(), now() FROM generate_series(1, 4)"
        ),
        Sent("DELETE FROM changeset_comments WHERE id % 17 = 2"),
    ),
    amended={"num_changes": 5, "closed_at": "2024-03-01T00:00:00.123456Z"},
    children={
        "changeset_comments": {
            "author_id": 2,
            "body": "on live",
            "created_at": "2024-03-01T00:00:00.000001Z",
            "visible": True,
        },
        "changesets_subscribers": {},
        "changeset_tags": {"k": "put", "v": "on live"},
    },
    changed={
        "changeset_comments": {"visible": False},
        "changesets_subscribers": {"why": "asked"},
        "changeset_tags": {"v": "again"},
    },
    numbers={"changesets_subscribers": 45},
    appended=("changeset_comments",),
)
