"""`python -m tripstore.demo.legacy`: the example company."""

import sys

import click

from tripstore.demo.legacy.command import legacy
from tripstore.errors import TripstoreError

if __name__ == "__main__":
    try:
        sys.exit(legacy.main(prog_name="python -m tripstore.demo.legacy", standalone_mode=False))
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except TripstoreError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(1)
