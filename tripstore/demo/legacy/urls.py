"""A database's URL, as the two drivers' worlds want it."""

from __future__ import annotations

import sqlalchemy as sa


def sqlalchemy_url(url: str) -> sa.URL:
    """The URL for `create_engine`, by psycopg2 whatever SQLAlchemy's default is."""
    return sa.make_url(url).set(drivername="postgresql+psycopg2")


def driver_url(url: str) -> str:
    """The URL for `psycopg2.connect`."""
    return sa.make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
