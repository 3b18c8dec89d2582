"""`EntriesLook`: the entries of an index version, held against the cells by what `tripstore index verify` goes by."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from schemaless_core.cell.canonical import Json
from schemaless_core.control.jobs.records import Finding
from schemaless_core.errors import InvalidRequest
from schemaless_core.fsck.faults import Fault, not_compared
from schemaless_core.indexes.verify import VerificationReport

#: Of a version: compare it.
Verify = Callable[[str, int], VerificationReport]


class EntriesLook:
    """Bounds of a part: the name and the number of a version."""

    def __init__(self, verify: Verify) -> None:
        self._verify = verify

    def __call__(self, bounds: Json) -> list[Finding]:
        match bounds:
            case [str(name), int(number)]:
                pass
            case _:
                raise AssertionError("a part of entries names an index and a version")
        try:
            report = self._verify(name, number)
        except InvalidRequest as gone:  # it was dropped since the job began
            return [not_compared(f"Version {number} of index {name}: {gone.message}", index=name, version=number)]
        except (msgspec.MsgspecError, RecursionError):
            reason = f"Version {number} of index {name}: a cell that it reads is no JSON"
            return [not_compared(reason, index=name, version=number)]
        findings = [
            Finding(
                Fault.ENTRY.value,
                each.row_key,
                body={
                    "reason": f"its entry in version {number} of index {name} is {each.kind.value}",
                    "index": name,
                    "version": number,
                },
            )
            for each in report.samples
        ]
        if more := report.differences - len(findings):
            reason = f"{more:,} more entries of version {number} of index {name} are wrong"
            findings.append(Finding(Fault.ENTRY.value, body={"reason": reason, "index": name, "version": number}))
        if report.not_compared:
            reason = (
                f"{report.not_compared:,} entries of version {number} of index {name}: it is behind, or they changed"
            )
            findings.append(not_compared(reason, index=name))
        return findings
