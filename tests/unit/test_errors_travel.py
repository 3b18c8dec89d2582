"""Errors cross processes: pickle, copy and deepcopy keep kind, text, facts. One that cannot kills a whole pool."""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import pkgutil
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from uuid import UUID

import pytest

import schemaless_core
import tripstore
from schemaless_core import ANY, Cell, CellConflict, MemoryStore
from schemaless_core.told import Told
from tripstore.engines import backfill, validation

CELL = Cell(UUID(int=7), "BASE", 2, {"fare": 1.5})
#: What a constructor is given, by the name of its parameter, then by its annotation.
BY_NAME = {
    "purged_key": (bytes(16), b"BASE", 1),
    "results": [CellConflict(CELL, None)],
    "reason": "it is so",
    "failures": [],
}
BY_KIND = {"str": "text", "int": 7, "float": 1.5, "Cell": CELL, "Cell | None": CELL, "bool": True, "int | None": 7}


class Fact:
    """Stands for a value of any kind that a message looks into."""

    def __getattr__(self, name: str) -> int:
        if name.startswith("__"):
            raise AttributeError(name)
        return 7


WAYS: dict[str, Callable[[Told], Told]] = {
    "pickle": lambda error: pickle.loads(pickle.dumps(error)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


def _kinds() -> list[type[Told]]:
    for package in (schemaless_core, backfill, validation, tripstore):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if ".migrations" not in module.name and not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    return sorted(set(_below(Told)), key=lambda kind: kind.__name__)


def _below(kind: type[Told]) -> Iterator[type[Told]]:
    for heir in kind.__subclasses__():
        yield heir
        yield from _below(heir)


def _made(kind: type[Told]) -> Told:
    arguments = [
        BY_NAME.get(parameter.name, BY_KIND.get(str(parameter.annotation), Fact()))
        for parameter in inspect.signature(kind).parameters.values()
        if parameter.default is parameter.empty
    ]
    return kind(*arguments)  # type: ignore[arg-type]  # chosen by the signature, at run time


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", _kinds(), ids=lambda kind: kind.__name__)
def test_an_error_arrives_as_it_was_sent(kind: type[Told], way: str) -> None:
    sent = _made(kind)
    sent.hint = "Mend it."

    arrived = WAYS[way](sent)

    assert type(arrived) is kind
    assert str(arrived) == str(sent)
    assert arrived.__dict__.keys() == sent.__dict__.keys()
    assert arrived.hint == "Mend it."


def test_the_facts_of_a_conflict_arrive() -> None:
    arrived = pickle.loads(pickle.dumps(CellConflict(CELL, Cell(UUID(int=7), "BASE", 2, "theirs", added_id=9))))

    assert (arrived.attempted, arrived.stored.body, arrived.stored.added_id) == (CELL, "theirs", 9)


def _conflicting(_: int) -> None:
    store = MemoryStore()
    store.put_cell(CELL.row_key, "BASE", 2, "theirs")
    store.put_cell(CELL.row_key, "BASE", 2, "mine")


@pytest.mark.slow
def test_a_conflict_in_a_worker_process_reaches_its_parent() -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool, pytest.raises(CellConflict) as caught:
        list(pool.map(_conflicting, [1]))

    assert caught.value.attempted.body == "mine"


def test_control_an_error_that_repeats_its_constructor_does_not_arrive() -> None:
    class Plain(CellConflict):
        __reduce__ = Exception.__reduce__  # type: ignore[assignment]  # what every error had without ours

    with pytest.raises((TypeError, AttributeError)):
        copy.copy(Plain(CELL, None))


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_the_value_that_expects_nothing_stays_itself(way: Callable[[object], object]) -> None:
    assert way(ANY) is ANY
