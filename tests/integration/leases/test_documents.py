"""Documents of the control database: compared by version, listed by name, kept whole."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from schemaless_core import DocumentConflict
from schemaless_core.control.audit import AuditLog
from schemaless_core.control.database import ControlDatabase
from schemaless_core.control.documents import Document, Documents
from tests.integration.leases.groups import Opener


def test_a_document_changes_only_from_the_version_that_was_seen(control: ControlDatabase) -> None:
    documents = Documents(control)
    put = {"action": "index.create", "detail": {"index": "by_driver"}}
    assert documents.find("indexes") is None

    first = documents.put("indexes", {"alias": 1, "name": "Ærø"}, expected_version=0, **put)  # type: ignore[arg-type]
    second = documents.put("indexes", {"alias": 2}, expected_version=1, **put)  # type: ignore[arg-type]  # the keywords of both puts

    assert first == Document("indexes", 1, {"alias": 1, "name": "Ærø"})
    assert documents.find("indexes") == second == Document("indexes", 2, {"alias": 2})
    for stale in (0, 1, 3):
        with pytest.raises(DocumentConflict) as conflict:
            documents.put("indexes", {"alias": 9}, expected_version=stale, **put)  # type: ignore[arg-type]
        assert (conflict.value.name, conflict.value.expected_version) == ("indexes", stale)
    assert documents.find("indexes") == second
    assert [entry.action for entry in AuditLog(control).newest()] == ["index.create"] * 2


def test_documents_are_listed_by_the_beginning_of_their_names(control: ControlDatabase) -> None:
    documents = Documents(control)
    for name in ("index:b", "index:a", "Index:c", "index%", "other"):
        documents.put(name, {}, expected_version=0, action="test", detail={})

    assert [document.name for document in documents.all("index:")] == ["index:a", "index:b"]
    assert len(documents.all("")) == 5


def test_a_large_document_is_kept_whole(control: ControlDatabase) -> None:
    body = {"digests": "x" * 300_000}

    Documents(control).put("large", body, expected_version=0, action="test", detail={})  # type: ignore[arg-type]

    found = Documents(control).find("large")
    assert found is not None
    assert found.body == body


def test_of_many_that_change_a_document_at_once_one_does(open_control: Opener, control: ControlDatabase) -> None:
    def put(number: int) -> bool:
        with closing(open_control()) as own:
            try:
                Documents(own).put("raced", {"by": number}, expected_version=expected, action="test", detail={})
            except DocumentConflict:
                return False
            return True

    for expected in (0, 1):
        with ThreadPoolExecutor(6) as executor:
            outcomes = list(executor.map(put, range(6)))
        found = Documents(control).find("raced")
        assert found is not None
        assert (found.version, outcomes.count(True), outcomes.index(True)) == (expected + 1, 1, found.body["by"])
