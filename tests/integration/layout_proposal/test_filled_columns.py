"""Columns that a trigger or the application fills."""

from __future__ import annotations

from tests.integration.layout_proposal.proposing import Proposed
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

FILLING = """
CREATE TABLE films (
    id serial PRIMARY KEY, title text NOT NULL, fulltext tsvector NOT NULL, slug text NOT NULL, shout text,
    email text, created_at timestamptz NOT NULL, updated_at timestamptz NOT NULL, seen_at timestamptz, "Odd" text
);
CREATE TRIGGER fulltext BEFORE INSERT OR UPDATE ON films FOR EACH ROW
    EXECUTE FUNCTION tsvector_update_trigger(fulltext, 'pg_catalog.english', title);
CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- NEW.title := 'no';
    IF NEW.title = 'NEW.title := x' THEN
        RAISE NOTICE 'NEW.title := %', NEW.title;
    END IF;
    IF NEW.slug IS NULL THEN NEW.slug := lower(NEW.title); END IF;
    NEW.email = lower(NEW.email);
    NEW.updated_at = now();
    NEW."Odd" := 'x';
    SELECT upper(NEW.title) INTO NEW.shout;
    RETURN NEW;
END $$;
CREATE TRIGGER fill BEFORE INSERT OR UPDATE ON films FOR EACH ROW EXECUTE FUNCTION fill();
CREATE FUNCTION seen() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.seen_at := now(); RETURN NEW; END';
CREATE TRIGGER seen BEFORE UPDATE ON films FOR EACH ROW WHEN (NEW.title = 'seen') EXECUTE FUNCTION seen();
"""


def test_columns_that_a_trigger_fills_are_left_out_with_a_remark(servers: LocalServers, flavour: Flavour) -> None:
    """As a field each change of the title would come out of Postgres otherwise than it was put, and be parked."""
    proposed = Proposed(servers, flavour, FILLING, ("films",))

    assert set(proposed.layout.parent.fields_by_name) == {"title", "slug", "email", "created_at", "seen_at"}
    for column, trigger in {"fulltext": "fulltext", "updated_at": "fill", "Odd": "fill", "shout": "fill"}.items():
        assert proposed.says(f"{column}: trigger {trigger} fills it")
    for column, trigger in {"slug": "fill", "email": "fill", "seen_at": "seen"}.items():
        assert any(
            remark.startswith(f"films.{column}: ") and f"trigger {trigger} may change it" in remark
            for remark in proposed.undecided
        )
    assert proposed.errors == []


def test_control_without_the_triggers_they_are_fields(servers: LocalServers, flavour: Flavour) -> None:
    gone = FILLING + "DROP TRIGGER fill ON films; ALTER TABLE films DISABLE TRIGGER fulltext"
    proposed = Proposed(servers, flavour, gone, ("films",))

    assert {"fulltext", "updated_at", "Odd", "shout"} <= set(proposed.layout.parent.fields_by_name)


def test_a_column_that_the_application_fills_puts_no_proposal_in_error(servers: LocalServers, flavour: Flavour) -> None:
    """Rails: `updated_at` is NOT NULL and has no default. Left out, no put could insert a row."""
    statements = "CREATE TABLE posts (id serial PRIMARY KEY, body text, updated_at timestamp NOT NULL)"
    proposed = Proposed(servers, flavour, statements, ("posts",))

    assert proposed.errors == []
    assert "updated_at" in proposed.layout.parent.fields_by_name
    assert proposed.says('to leave it out: ALTER TABLE "public"."posts" ALTER COLUMN "updated_at" SET DEFAULT now()')
    with_default = Proposed(
        servers, flavour, statements + " ; ALTER TABLE posts ALTER updated_at SET DEFAULT now()", ("posts",)
    )
    assert "updated_at" not in with_default.layout.parent.fields_by_name
