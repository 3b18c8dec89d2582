"""The md5 of a few bytes is the same from both of our implementations."""

from __future__ import annotations

import os
from hashlib import md5
from importlib import reload
from typing import NoReturn

import pytest

from schemaless_core.cell import short_md5

INPUTS = [b"", b"\0" * 16, *(os.urandom(n) for n in (1, 16, 63, 64, 65, 1000))]


@pytest.mark.parametrize("data", INPUTS, ids=len)
def test_it_is_md5(data: bytes) -> None:
    assert short_md5.short_md5(data).digest() == md5(data, usedforsecurity=False).digest()


def test_an_interpreter_without_its_own_asks_openssl(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_name: str) -> NoReturn:
        raise ImportError

    with monkeypatch.context() as patched:
        patched.setattr("importlib.import_module", missing)
        found = reload(short_md5).short_md5
    reload(short_md5)

    assert found is not short_md5.short_md5
    assert found(b"x").digest() == md5(b"x", usedforsecurity=False).digest()
