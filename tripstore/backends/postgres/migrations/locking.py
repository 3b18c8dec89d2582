"""How a migration takes a table into which the company's writers insert."""

from __future__ import annotations


def lock_without_a_queue(*tables: str) -> str:
    """The statement; its lock lasts until the migration is over. A writer waits behind one try for 0.2 s at most."""
    names = ", ".join(tables)
    return f"""
DO $$ BEGIN
  FOR tries IN 1..100 LOOP
    BEGIN
      PERFORM pg_catalog.set_config('lock_timeout', '200ms', true);
      LOCK TABLE {names} IN ACCESS EXCLUSIVE MODE;
      RETURN;
    EXCEPTION WHEN lock_not_available THEN
      PERFORM pg_catalog.pg_sleep(0.3);
    END;
  END LOOP;
  LOCK TABLE {names} IN ACCESS EXCLUSIVE MODE;
END $$
"""
