"""`python -m tripstore.demo.legacy`: the example company."""

import sys

import click
import psycopg2
import sqlalchemy as sa

from tripstore.demo.legacy.command import legacy
from tripstore.errors import TripstoreError

if __name__ == "__main__":
    try:
        sys.exit(legacy.main(prog_name="python -m tripstore.demo.legacy", standalone_mode=False))
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (psycopg2.OperationalError, sa.exc.OperationalError) as error:
        reason = str(getattr(error, "orig", error)).splitlines()[0]
        click.echo(
            f"Error: the database cannot be reached ({reason}). Look at --url, and whether Postgres runs.", err=True
        )
        sys.exit(1)
    except TripstoreError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(1)
