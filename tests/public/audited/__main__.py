"""Prints recall and precision of `audit code`, measured in checkouts of public code bases.

`make audit-measure CHECKOUTS=folder`: one folder per code base, named as below, at the commit that was read.
With `PLACES=--places` it prints what was missed and what was false as well.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tests.public.audited import CODE
from tests.public.audited.measuring import Measured, measure

HEADS = ("code base", "kind", "table", "uses found", "rows found", "precision", "missed, but said")


def main(arguments: Sequence[str]) -> int:
    folders = [each for each in arguments if not each.startswith("--")]
    if len(folders) != 1:
        print("Say where the checkouts are: python -m tests.public.audited FOLDER [--places]")
        print(
            *dict.fromkeys(f"  {each.name}: https://github.com/{each.repository} at {each.commit}" for each in CODE),
            sep="\n",
        )
        return 2
    there = [each for each in CODE if (Path(folders[0]) / each.name).is_dir()]
    measured = [measure(Path(folders[0]) / each.name, each) for each in there]
    print("\n".join(table(measured)))
    if "--places" in arguments:
        print("\n".join(line for each in measured for line in places(each)))
    missing = list(dict.fromkeys(each.name for each in CODE if each not in there))
    print(*(f"{name}: no checkout" for name in missing), sep="\n", end="\n" if missing else "")
    return 3 if missing else 0


def table(measured: Sequence[Measured]) -> list[str]:
    """The table, in Markdown."""
    rows = [_row(each) for each in measured]
    return ["| " + " | ".join(HEADS) + " |", "|---" * len(HEADS) + "|"] + [f"| {' | '.join(row)} |" for row in rows]


def _row(each: Measured) -> tuple[str, ...]:
    code = each.code
    found = (str(each.uses), str(each.rows), each.precision, str(each.said))
    part = f", {code.part}" if code.part else ""
    return (f"{code.repository} {code.commit[:8]}{part}", code.kind, f"`{code.table}`", *found)


def places(each: Measured) -> list[str]:
    """What to look at by hand."""
    missed = [("use", place) for place in each.uses.missed] + [("row", place) for place in each.rows.missed]
    return [f"{each.code.name}: missed {what} {file}:{first}-{last}" for what, (file, first, last) in missed] + [
        f"{each.code.name}: false {file}:{line}" for file, line in each.false
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
