"""Options that all commands share, and the commands and groups that know them.

The global options may stand before the command's name or after it; shown they are once, in `tripstore --help`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from tripstore.cli.logs import show_logs

if TYPE_CHECKING:  # Imported where a store is opened: help, and a call that is mistyped, do not wait for it.
    from schemaless_core.datastore import Datastore
    from tripstore.backends.postgres.layout.layout import Layout
    from tripstore.config import TripstoreConfig
    from tripstore.store import TripStore

logger = logging.getLogger(__name__)

DEFAULT_FILE = Path("tripstore.yaml")
ENVIRONMENT_VARIABLE = "TRIPSTORE_CONFIG"

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

_NEGATIVE_NUMBER = re.compile(r"-\d[\d.eE+-]*")


def _note_difference(of_file: Layout, in_force: Layout) -> None:
    if of_file.digest != in_force.digest:
        extra = {"event": "worker.layout_differs", "layout": in_force.digest, "file": of_file.digest}
        logger.warning("the layout in force is not that of the file; `schema apply` changes that", extra=extra)


@dataclass
class Settings:
    """What the global options say."""

    config: Path = DEFAULT_FILE
    is_debug: bool = False
    verbosity: int = 0

    def load(self) -> TripstoreConfig:
        """Read the configuration file."""
        from tripstore.config import load_config

        return load_config(self.config)

    def connect(self) -> TripStore:
        """Open both stores of the configuration file behind one API, by its layout."""
        from tripstore.store import TripStore
        from tripstore.wiring import build

        return TripStore(build(self.load()))

    def connect_in_force(self) -> TripStore:
        """The same by the layout in force, whatever the file says."""
        from tripstore.facade.in_force import with_layout_in_force
        from tripstore.store import TripStore
        from tripstore.wiring import build

        config = self.load()
        in_force = with_layout_in_force(config)
        if config.legacy is not None and in_force.legacy is not None:
            _note_difference(config.legacy.layout, in_force.legacy.layout)
        return TripStore(build(in_force), lambda: build(with_layout_in_force(config)))

    def open(self) -> Datastore:
        """Open the datastore of the configuration file."""
        from schemaless_core.datastore import Datastore

        return Datastore(self.load().core)


def gathered(
    function: Decorated, options: Sequence[Callable[[Any], Any]], name: str, kind: Callable[..., object]
) -> Decorated:
    """Add options whose values the command takes as one, made by `kind` of their names."""

    @wraps(function)
    def command(*arguments: Any, **values: Any) -> Any:
        one = kind(**{option: values.pop(option) for option in named})
        return function(*arguments, **{name: one}, **values)

    decorated: Any = command
    known = len(getattr(decorated, "__click_params__", ()))
    for option in reversed(options):
        decorated = option(decorated)
    named = [each.name for each in decorated.__click_params__[known:]]
    return cast(Decorated, decorated)


pass_settings = click.make_pass_decorator(Settings, ensure=True)

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
read_option = click.option(
    "--read",
    type=click.Choice(["primary", "replica"]),
    default="primary",
    show_default=True,
    help="Which servers to ask first.",
)
deadline_option = click.option("--deadline", type=float, metavar="SECONDS", help="How long a call may take.")


def global_options(*, hidden: bool) -> list[click.Parameter]:
    """Return the options of every command; their values end up in the context's `Settings`."""
    return [
        click.Option(
            ["-c", "--config"],
            type=click.Path(dir_okay=False, path_type=Path),
            # Read once, at the group: after the command's name the variable would win over -c before it.
            envvar=None if hidden else ENVIRONMENT_VARIABLE,
            help=f"The configuration; else ${ENVIRONMENT_VARIABLE}, else ./{DEFAULT_FILE}.",
            callback=_set_config,
            expose_value=False,
            hidden=hidden,
        ),
        click.Option(
            ["-v", "--verbose"],
            count=True,
            help="Show our log on stderr; twice: everything.",
            callback=_set_verbose,
            expose_value=False,
            hidden=hidden,
        ),
        click.Option(
            ["--debug"],
            is_flag=True,
            help="Show the traceback of an error.",
            callback=_set_debug,
            expose_value=False,
            hidden=hidden,
        ),
    ]


class Command(click.Command):
    """A command that takes the global options too, and arguments that are negative numbers."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.params.extend(global_options(hidden=True))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # Ref keys and bodies may be negative; without one, a mistyped option keeps its own complaint.
        if any(_NEGATIVE_NUMBER.fullmatch(argument) for argument in args):
            ctx.ignore_unknown_options = True
        return super().parse_args(ctx, args)


class CommandGroup(click.Group):
    """A noun: a group of our commands."""

    command_class = Command
    group_class = type


def _set_config(context: click.Context, parameter: click.Parameter, value: Path | None) -> None:
    if value is not None:
        context.ensure_object(Settings).config = value


def _set_verbose(context: click.Context, parameter: click.Parameter, value: int) -> None:
    if value:
        context.ensure_object(Settings).verbosity = value
        show_logs(value)


def _set_debug(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        context.ensure_object(Settings).is_debug = True
