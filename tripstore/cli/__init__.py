"""The command `tripstore`: one file per noun. The top of everything; nobody imports it."""

from tripstore.cli.run import main

__all__ = ["main"]
