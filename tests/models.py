"""Modules that `tripstore models` would write, imported: for tests of typed rows."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import module_from_spec, spec_from_file_location
from itertools import count
from pathlib import Path
from types import ModuleType

from schemaless_core.definitions.index import IndexDefinition
from tripstore.backends.postgres.layout.layout import Layout
from tripstore.models.source import classes_of, module_of
from tripstore.typed import TypedRow

_numbers = count(1)


def written(layout: Layout | None, indexes: Sequence[IndexDefinition] = (), datastore: str = "trips") -> str:
    """The text of a module."""
    name = datastore if layout is None else layout.datastore
    return module_of(name, classes_of(name, layout, indexes))


def imported(text: str, folder: Path) -> ModuleType:
    """The module of such a text, under a name of its own."""
    name = f"written_models_{next(_numbers)}"
    file = folder / f"{name}.py"
    file.write_text(text, encoding="utf-8")
    spec = spec_from_file_location(name, file)
    assert spec is not None, file
    assert spec.loader is not None, file
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows_of(module: ModuleType) -> dict[str, type[TypedRow]]:
    """Its classes of rows, by their columns."""
    kinds = [kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, TypedRow)]
    return {kind.column_name: kind for kind in kinds if kind is not TypedRow}
