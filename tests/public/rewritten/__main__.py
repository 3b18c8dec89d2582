"""Prints what `audit rewrite` would do in checkouts of public code bases: `python -m tests.public.rewritten FOLDER…`.

Each model with one integer key is taken for the table of a layout, all of its columns for fields, and the indexes that
the queries ask for are there. All is assumed that may be assumed: as much is rewritten as can be, and read by a reader.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tripstore.audit.meaning.bindings import keyword, last_name
from tripstore.audit.orms.naming import flask_names
from tripstore.audit.reading.files import SourceTree, read
from tripstore.audit.reading.parsing import parse
from tripstore.audit.rewrite.patches import diff
from tripstore.audit.rewrite.rewriting import rewrite_code
from tripstore.audit.rewrite.verdicts import CodeRewrite, RewriteAssumption, RewriteVerdict
from tripstore.audit.rewrite.wishes import RewriteWishes
from tripstore.backends.postgres.layout.layout import (
    Field,
    FieldType,
    Layout,
    MappedColumn,
    RefKeySource,
    RowKeySource,
    TableName,
)

_KINDS = {
    **dict.fromkeys(("String", "Text", "Unicode", "UnicodeText", "TrimmedString", "VARCHAR"), FieldType.STRING),
    **dict.fromkeys(("Integer", "BigInteger", "SmallInteger"), FieldType.INT),
    "Numeric": FieldType.DECIMAL,
    "Boolean": FieldType.BOOLEAN,
    "DateTime": FieldType.DATETIME,
    "Date": FieldType.DATE,
    "LargeBinary": FieldType.BYTES,
    "Float": FieldType.FLOAT,
}
_WORD = re.compile(r"\b[A-Z]\w+")
#: Of each code base so many models are taken, those that are named most often.
MODELS_MAX = 12
#: What is read by hand, of all that is rewritten.
SAMPLE = 100


@dataclass(frozen=True)
class FoundModel:
    """A class with `__tablename__`, its key, and its columns as types of fields."""

    name: str
    table: str
    key: str
    fields: dict[str, FieldType]

    @property
    def layout(self) -> Layout:
        columns = tuple(Field(name, name, kind) for name, kind in self.fields.items() if name != self.key)
        table = TableName("public", self.table)
        base = MappedColumn("BASE", table, "row_uuid", None, RefKeySource(version="base_version"), columns)
        return Layout("public", RowKeySource(table, self.key, "row_uuid"), {"BASE": base})


def chosen_models(folder: Path) -> list[FoundModel]:
    words: Counter[str] = Counter()
    for file in SourceTree(folder).files():
        if file.path.suffix == ".py":
            words.update(_WORD.findall(file.path.read_text(errors="replace")))
    found = {model.table: model for model in found_models(folder)}
    return sorted(found.values(), key=lambda each: (-words[each.name], each.table))[:MODELS_MAX]


def found_models(folder: Path) -> Iterator[FoundModel]:
    for file in SourceTree(folder).files():
        if file.path.suffix != ".py":
            continue
        try:
            tree = parse(read(file))
        except (SyntaxError, ValueError):
            continue
        for node in ast.walk(tree):
            model = _model(node) if isinstance(node, ast.ClassDef) else None
            if model is not None:
                yield model


def _model(node: ast.ClassDef) -> FoundModel | None:
    table, keys, fields = None, [], dict[str, FieldType]()
    for statement in node.body:
        target, value = None, None
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            target, value = statement.targets[0].id, statement.value
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            target, value = statement.target.id, statement.value
        if target == "__tablename__" and isinstance(value, ast.Constant) and isinstance(value.value, str):
            table = value.value
        if target is None or not (isinstance(value, ast.Call) and last_name(value.func) in ("Column", "mapped_column")):
            continue
        said = ast.unparse(statement)
        kind = next((kind for name, kind in _KINDS.items() if f"{name}(" in said or f"{name}," in said), None)
        kind = kind or (FieldType.INT if "int" in said else FieldType.STRING)
        fields[target] = kind
        flag = keyword(value, "primary_key")
        if isinstance(flag, ast.Constant) and flag.value is True:
            keys.append(target)
    is_flask = any(last_name(base).endswith("Model") for base in node.bases)
    table = table or (flask_names(node.name)[0] if is_flask else None)
    return FoundModel(node.name, table, keys[0], fields) if table and len(keys) == 1 and len(fields) > 1 else None


def rewritten(folder: Path, model: FoundModel) -> CodeRewrite:
    """With the indexes that a first run proposed."""
    wishes = RewriteWishes(
        "app.stores:cell_store", ("session_scope", "_create_scoped_session"), tuple(RewriteAssumption), False
    )
    first = rewrite_code(folder, model.layout, (), ("tests", "test", "migrations", "alembic"), wishes)
    return rewrite_code(folder, model.layout, first.proposed, ("tests", "test", "migrations", "alembic"), wishes)


def main(arguments: Sequence[str]) -> int:
    reasons: Counter[str] = Counter()
    changes: list[str] = []
    for argument in arguments:
        folder = Path(argument)
        counts: Counter[RewriteVerdict] = Counter()
        models = chosen_models(folder)
        for model in models:
            found = rewritten(folder, model)
            counts.update(each.verdict for each in found.uses)
            reasons.update(each.reason for each in found.uses if each.verdict is RewriteVerdict.LEFT)
            changes += [diff(each) for each in found.changed]
        said = ", ".join(f"{verdict.value} {counts[verdict]:,}" for verdict in RewriteVerdict)
        print(f"{folder.name}: {len(models)} models, {said}")
    print(*(f"{count:6,} {reason}" for reason, count in reasons.most_common(25)), sep="\n")
    print(*Random(1).sample(changes, min(SAMPLE, len(changes))), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
