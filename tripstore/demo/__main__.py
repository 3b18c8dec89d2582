"""`python -m tripstore.demo`: the same as `tripstore demo`."""

import sys

import click

from schemaless_core.errors import SchemalessError
from tripstore.demo.command import demo
from tripstore.errors import TripstoreError
from tripstore.local.errors import LocalServerError

if __name__ == "__main__":
    try:
        sys.exit(demo.main(prog_name="python -m tripstore.demo", standalone_mode=False))
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (SchemalessError, TripstoreError, LocalServerError) as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(1)
