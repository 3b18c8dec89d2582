"""A DVD rental shop, after Pagila: films and what hangs on them. Tables in our words, rows made up."""

from __future__ import annotations

from tests.public.schema import PublicSchema, Sent

_TABLES = """
CREATE TYPE mpaa_rating AS ENUM ('G', 'PG', 'PG-13', 'R', 'NC-17');
CREATE DOMAIN year AS integer CHECK (VALUE BETWEEN 1901 AND 2155);
CREATE FUNCTION last_updated() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN NEW.last_update := clock_timestamp(); RETURN NEW; END $$;
CREATE TABLE language (
    language_id serial PRIMARY KEY, name char(20) NOT NULL, last_update timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE film (
    film_id serial PRIMARY KEY,
    title text NOT NULL,
    description text,
    release_year year,
    language_id int NOT NULL REFERENCES language ON UPDATE CASCADE ON DELETE RESTRICT,
    rental_duration smallint NOT NULL DEFAULT 3,
    rental_rate numeric(4, 2) NOT NULL DEFAULT 4.99,
    length smallint,
    replacement_cost numeric(5, 2) NOT NULL DEFAULT 19.99,
    rating mpaa_rating DEFAULT 'G',
    last_update timestamptz NOT NULL DEFAULT now(),
    special_features text[],
    fulltext tsvector NOT NULL
);
CREATE TABLE film_actor (
    actor_id int NOT NULL,
    film_id int NOT NULL REFERENCES film ON UPDATE CASCADE ON DELETE CASCADE,
    last_update timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (actor_id, film_id)
);
CREATE TABLE inventory (
    inventory_id serial PRIMARY KEY,
    film_id int NOT NULL REFERENCES film ON UPDATE CASCADE ON DELETE CASCADE,
    store_id int NOT NULL,
    last_update timestamptz NOT NULL DEFAULT now()
);
CREATE TRIGGER film_fulltext BEFORE INSERT OR UPDATE ON film FOR EACH ROW
    EXECUTE FUNCTION tsvector_update_trigger('fulltext', 'pg_catalog.english', 'title', 'description');
CREATE TRIGGER last_updated BEFORE UPDATE ON film FOR EACH ROW EXECUTE FUNCTION last_updated();
CREATE TRIGGER last_updated BEFORE UPDATE ON film_actor FOR EACH ROW EXECUTE FUNCTION last_updated();
CREATE TRIGGER last_updated BEFORE UPDATE ON inventory FOR EACH ROW EXECUTE FUNCTION last_updated();
"""

_ROWS = """
INSERT INTO language (name) VALUES ('English'), ('Français'), ('Latin');
INSERT INTO film (title, description, release_year, language_id, rental_rate, length, rating, special_features)
SELECT 'Film ' || n, CASE WHEN n % 7 > 0 THEN 'The tale of ' || md5(n::text) END, 1950 + n % 70, 1 + n % 3,
    0.99 + n % 5, CASE WHEN n % 3 > 0 THEN 50 + n % 130 END, (enum_range(NULL::mpaa_rating))[1 + n % 5],
    CASE n % 4 WHEN 0 THEN NULL WHEN 1 THEN '{{}}' ELSE ARRAY['Trailers', 'Scene "' || n || '"'] END
FROM generate_series(1, {rows}) n;
INSERT INTO film_actor (actor_id, film_id)
SELECT a, 1 + (a * 7 + k) % {rows} FROM generate_series(1, {rows}) a, generate_series(0, 2) k ON CONFLICT DO NOTHING;
INSERT INTO inventory (film_id, store_id) SELECT 1 + n % {rows}, 1 + n % 2 FROM generate_series(1, {rows} * 4) n;
ANALYZE;
"""

PAGILA = PublicSchema(
    name="pagila",
    ddl=_TABLES,
    rows=_ROWS,
    tables=("film", "film_actor", "inventory"),
    parent="film",
    traffic=(
        Sent("UPDATE film SET title = title || '!', rental_rate = rental_rate + 0.10 WHERE film_id % 3 = 0"),
        Sent("UPDATE film SET rental_rate = 1.10 WHERE film_id % 5 = 1"),
        Sent("UPDATE film SET rental_rate = 1.1, length = NULL WHERE film_id % 5 = 1"),
        Sent(
            "INSERT INTO film (film_id, title, language_id) VALUES (2, 'x', 1) "
            "ON CONFLICT (film_id) DO UPDATE SET title = 'upserted', special_features = '{a,NULL}'"
        ),
        Sent(
            "INSERT INTO film (title, language_id, rating, special_features) "
            "SELECT 'New ' || n, 2, 'R', ARRAY[n::text] FROM generate_series(1, 5) n"
        ),
        Sent("COPY inventory (film_id, store_id) FROM stdin", "3\t1\n3\t2\n4\t2\n"),
        Sent(
            "MERGE INTO inventory i USING (SELECT film_id FROM film WHERE film_id < 9) f ON i.film_id = f.film_id "
            "WHEN MATCHED AND i.store_id = 2 THEN DELETE WHEN MATCHED THEN UPDATE SET store_id = i.store_id + 10 "
            "WHEN NOT MATCHED THEN INSERT (film_id, store_id) VALUES (f.film_id, 7)"
        ),
        Sent("DELETE FROM film_actor WHERE actor_id = 5"),
        Sent("DELETE FROM film WHERE film_id = 6"),
        # A key of a table that is not mapped: by a cascade it changes what films say.
        Sent("UPDATE language SET language_id = 33 - language_id WHERE name = 'Latin'"),
        Sent("UPDATE language SET name = 'Deutsch' WHERE language_id = 2"),
    ),
    amended={"title": "on live", "special_features": ["a", None], "rental_rate": "2.50"},
    children={"film_actor": {}, "inventory": {"store_id": 3}},
    changed={"inventory": {"store_id": 4}, "film_actor": {"billing": "first"}},
    appended=("inventory",),
)
