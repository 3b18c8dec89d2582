"""Revisions, run by alembic."""
