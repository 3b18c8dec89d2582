"""Any module can be imported first: none needs, on its way, what waits for it."""

from __future__ import annotations

import grimp
import pytest

PACKAGES = ("schemaless_core", "tripstore")


@pytest.fixture(scope="module")
def imports() -> dict[str, set[str]]:
    """What the import of a module imports: the packages around it, too."""
    graph = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=True)
    return {
        module: {
            found
            for imported in graph.find_modules_directly_imported_by(module)
            for found in (imported, *_around(imported))
            if found != module and not module.startswith(f"{found}.")
        }
        for module in graph.modules
    }


def _around(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def circle(imports: dict[str, set[str]]) -> set[str]:
    """The modules of circles, and what lies between two of them: what is left when all that can come first has come."""
    left = {module: set(imported) for module, imported in imports.items()}
    while first := {module for module, imported in left.items() if not imported & left.keys()}:
        left = {module: imported for module, imported in left.items() if module not in first}
    return set(left)


def test_no_module_waits_for_itself(imports: dict[str, set[str]]) -> None:
    assert circle(imports) == set()


def test_control_a_module_that_waits_for_itself_is_found(imports: dict[str, set[str]]) -> None:
    turned = imports | {"schemaless_core.told": {"schemaless_core.errors"}}

    assert {"schemaless_core.told", "schemaless_core.errors"} <= circle(turned)
