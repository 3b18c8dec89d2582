"""`AuditedCode`: a public code base, and what a reader says about one of its tables. Facts only: paths and lines.

A use is a statement that names the model or the table, reaches it by a relationship, or changes it by a migration.
A row is a statement that writes an object which came from elsewhere (an attribute, `save()`, `session.add(user)`), or
asks the database for it again. Neither are the import, the model's own definition, and reading a column of an object.

Either is what two readers would not agree on. A foreign key is given or compared by an object: `Flip(owner=check)`.
A query goes on. An alias stands for the model. A column is added inside of `with op.batch_alter_table("user")`. A
model is looked up by its name and kept under a name. An index is dropped by its own name. It counts as neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

#: Lines by file: `"3 7-9"` are a statement of one line and one of three. Of a statement with others inside, the head.
Statements = Mapping[str, str]


@dataclass(frozen=True)
class AuditedCode:
    """One code base at one commit. All of `files` were read, or every file if none is named."""

    name: str  #: of the folder that holds the checkout
    repository: str
    commit: str
    kind: str
    table: str
    uses: Statements
    rows: Statements
    either: Statements
    files: tuple[str, ...] = ()
    chosen: str = "all files"  #: how the files were chosen
    part: str = ""  #: of two lists of one code base, which this is

    def is_read(self, file: str) -> bool:
        return not self.files or file in self.files


def spans(statements: Statements) -> list[tuple[str, int, int]]:
    """Each statement as its file, its first and its last line."""
    found = []
    for file, lines in statements.items():
        for each in lines.split():
            first, _, last = each.partition("-")
            found.append((file, int(first), int(last or first)))
    return found
