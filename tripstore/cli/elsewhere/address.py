"""`EngineAddress`: what `--on` takes: `dask://host:port`, or `tls+dask://host:port`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import click

from schemaless_core.urls import shown_setting
from tripstore.cli.options import Decorated

DASK_PORT = 8786
_ADDRESS = re.compile(r"(?P<scheme>[a-z+]+)://(?P<host>[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(:(?P<port>[0-9]{1,5}))?/?")
_DASK = {"dask": "tcp", "tls+dask": "tls"}
_HINT = f"Write dask://scheduler:{DASK_PORT}, or tls+dask:// where its connections are encrypted."
#: Decision 92 has what was measured.
_NO_RAY = (
    "Ray is not offered: its servers listen on every address of a host, whatever they are told, and take any code"
    " without asking. Use dask://, or start `tripstore worker run` on each host by Ray and say --detach."
)


@dataclass(frozen=True, slots=True)
class EngineAddress:
    """Where the scheduler of an engine is."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"

    @property
    def of_dask(self) -> str:
        """As Dask writes it."""
        return f"{_DASK[self.scheme]}://{self.host}:{self.port}"


class EngineOption(click.ParamType[EngineAddress]):
    """The address of an engine that runs tasks."""

    name = "engine"

    def convert(
        self, value: str | EngineAddress, param: click.Parameter | None, ctx: click.Context | None
    ) -> EngineAddress:
        if isinstance(value, EngineAddress):
            return value
        if value.startswith("ray://"):
            self.fail(_NO_RAY, param, ctx)
        found = _ADDRESS.fullmatch(value)
        if found is None:
            self.fail(f"{shown_setting(value)} is no address of an engine. {_HINT}", param, ctx)
        if found["scheme"] not in _DASK:
            self.fail(f"{shown_setting(value)} has the scheme {found['scheme']!r}. {_HINT}", param, ctx)
        port = int(found["port"] or DASK_PORT)
        if not 0 < port < 65_536:
            self.fail(f"{shown_setting(value)} has a port that is none. {_HINT}", param, ctx)
        return EngineAddress(found["scheme"], found["host"], port)


def on_option(function: Decorated) -> Decorated:
    """Add `--on` to a command, which takes an `EngineAddress`, or None, as `on`."""
    return _on(required=False)(function)


def needed_on_option(function: Decorated) -> Decorated:
    """The same of a command that does nothing without."""
    return _on(required=True)(function)


def _on(*, required: bool) -> Callable[[Decorated], Decorated]:
    said = "Have tasks of this engine do it: dask://scheduler:8786."
    return click.option("--on", type=EngineOption(), metavar="ENGINE", required=required, help=said)
