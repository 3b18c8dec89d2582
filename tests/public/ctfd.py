"""A contest platform, after CTFd: challenges, and what was submitted. Tables in our words, rows made up."""

from __future__ import annotations

from tests.public.schema import PublicSchema, Sent

_TABLES = """
CREATE TABLE users (id serial PRIMARY KEY, name varchar(128), email varchar(128) UNIQUE, created timestamp);
CREATE TABLE challenges (
    id serial PRIMARY KEY,
    name varchar(80),
    description text,
    next_id int REFERENCES challenges (id) ON DELETE SET NULL,
    max_attempts int DEFAULT 0,
    value int,
    category varchar(80),
    type varchar(80),
    state varchar(80) NOT NULL DEFAULT 'visible',
    requirements json
);
CREATE TABLE hints (
    id serial PRIMARY KEY,
    type varchar(80) DEFAULT 'standard',
    challenge_id int NOT NULL REFERENCES challenges (id) ON DELETE CASCADE,
    content text,
    cost int DEFAULT 0,
    requirements json
);
CREATE TABLE submissions (
    id serial PRIMARY KEY,
    challenge_id int NOT NULL REFERENCES challenges (id) ON DELETE CASCADE,
    user_id int REFERENCES users (id) ON DELETE CASCADE,
    ip varchar(46),
    provided text,
    type varchar(32),
    date timestamp
);
CREATE TABLE solves (
    id int PRIMARY KEY REFERENCES submissions (id) ON DELETE CASCADE,
    challenge_id int NOT NULL REFERENCES challenges (id) ON DELETE CASCADE,
    user_id int REFERENCES users (id) ON DELETE CASCADE,
    UNIQUE (challenge_id, user_id)
);
"""

_ROWS = """
INSERT INTO users (name, email, created)
SELECT 'user ' || n, n || '@example.org', timestamp '2024-01-01' + n * interval '1.000001 h'
FROM generate_series(1, 40) n;
INSERT INTO challenges (name, description, value, category, type, state, requirements)
SELECT 'c' || n, repeat('é ', n % 9), 100 * (n % 5), (ARRAY['web', 'crypto', 'pwn'])[1 + n % 3], 'standard',
    CASE n % 6 WHEN 0 THEN 'hidden' ELSE 'visible' END,
    CASE n % 4 WHEN 0 THEN NULL ELSE json_build_object('prerequisites', json_build_array(n, n + 1), 'x', 1.50) END
FROM generate_series(1, {rows}) n;
UPDATE challenges SET next_id = id + 1 WHERE id % 2 = 1 AND id < {rows};
INSERT INTO hints (challenge_id, content, cost)
SELECT 1 + n % {rows}, 'hint ' || n, n % 3 FROM generate_series(1, {rows} * 2) n;
INSERT INTO submissions (challenge_id, user_id, ip, provided, type, date)
SELECT 1 + n % {rows}, 1 + n % 40, '10.0.0.' || n % 250, 'flag' || E'{{\\\\"' || n || '}}',
    CASE n % 5 WHEN 0 THEN 'correct' ELSE 'incorrect' END, timestamp '2024-02-01' + n * interval '3.7 s'
FROM generate_series(1, {rows} * 8) n;
INSERT INTO solves (id, challenge_id, user_id)
SELECT DISTINCT ON (challenge_id, user_id) id, challenge_id, user_id FROM submissions WHERE type = 'correct';
ANALYZE;
"""

CTFD = PublicSchema(
    name="ctfd",
    ddl=_TABLES,
    rows=_ROWS,
    tables=("challenges", "hints", "submissions", "solves"),
    parent="challenges",
    traffic=(
        Sent("UPDATE challenges SET value = value - 1, state = 'hidden' WHERE id % 4 = 1"),
        Sent("UPDATE challenges SET requirements = '{\"a\": [1, 2.0, null]}' WHERE id = 2"),
        Sent(
            "INSERT INTO submissions (challenge_id, user_id, provided, type, date) "
            "SELECT 1 + n % 4, 10 + n, 'again', 'incorrect', now() FROM generate_series(1, 9) n"
        ),
        Sent("COPY hints (challenge_id, content, cost) FROM stdin", "2\tcopied \\\\ hint\t5\n3\t\\N\t0\n"),
        Sent("UPDATE submissions SET type = 'discard' WHERE id % 11 = 3"),
        Sent(
            "INSERT INTO hints (id, challenge_id, content) VALUES (1, 2, 'x') ON CONFLICT (id) DO UPDATE SET cost = 9"
        ),
        Sent(
            "MERGE INTO hints h USING challenges c ON h.challenge_id = c.id AND c.id < 6 "
            "WHEN MATCHED AND h.cost = 2 THEN DELETE WHEN MATCHED THEN UPDATE SET cost = h.cost + 1"
        ),
        # Both go by cascades: what a user sent, and everything of a challenge.
        Sent("DELETE FROM users WHERE id = (SELECT min(id) FROM users WHERE id > 6)"),
        Sent("DELETE FROM challenges WHERE id = 5"),
        Sent("DELETE FROM submissions WHERE id % 13 = 1"),
    ),
    amended={"name": "on live", "requirements": {"a": [1, {"b": None}]}},
    children={
        "hints": {"content": "put", "cost": 1},
        "submissions": {"user_id": 3, "provided": "flag{}", "type": "correct", "date": "2024-03-01T00:00:00.000001Z"},
        "solves": {"user_id": 40},
    },
    changed={"hints": {"cost": 2}, "submissions": {"type": "discard"}, "solves": {"user_id": 39}},
    appended=("hints", "submissions"),
)
