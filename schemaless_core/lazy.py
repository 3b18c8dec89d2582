"""A package's public names, each imported when it is first asked for: a command that needs none waits for none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module


def imported_when_asked(package: str, homes: Mapping[str, Iterable[str]]) -> Callable[[str], object]:
    """Return the `__getattr__` of a package whose names stand in these modules. Type checkers read its stub."""
    places = {name: module for module, names in homes.items() for name in names}

    def find(name: str) -> object:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name)
        return getattr(import_module(places[name]), name)

    return find
