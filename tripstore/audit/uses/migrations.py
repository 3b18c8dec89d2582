"""Migrations of Django: operations that name a model by a text, `migrations.AddField("trip", …)`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from tripstore.audit.meaning.bindings import keyword, last_name
from tripstore.audit.names import LegacyTable, words
from tripstore.audit.orms.models import Models

#: Their first argument is the model.
_OF_MODEL = words(
    "CreateModel DeleteModel RenameModel AlterModelTable AlterModelTableComment AlterUniqueTogether AlterIndexTogether "
    "AlterOrderWithRespectTo AddField RemoveField AlterField RenameField AddIndex RemoveIndex RenameIndex "
    "AddIndexConcurrently RemoveIndexConcurrently AddConstraint RemoveConstraint AlterConstraint "
    "AddConstraintNotValid ValidateConstraint"
)


def migrated_tables(
    call: ast.Call, file: str, models: Models, known: Callable[[ast.expr], str | None]
) -> Iterator[tuple[ast.expr, LegacyTable]]:
    """Yield the legacy tables that an operation changes, each with the argument that says so."""
    if last_name(call.func) not in _OF_MODEL or not models.apps.is_migration(file):
        return
    table = _table_option(call)
    found = models.tables.find(None, known(table) or "") if table is not None else None
    if table is not None and found is not None:
        yield table, found
        return
    for named in _named_models(call):
        for each in dict.fromkeys(_tables_of(known(named) or "", file, models)):
            yield named, each


def _named_models(call: ast.Call) -> list[ast.expr]:
    """One; of RenameModel, of which only one is in the code still, both."""
    if last_name(call.func) == "RenameModel":
        return [*call.args[:2], *filter(None, (keyword(call, "old_name"), keyword(call, "new_name")))]
    named = keyword(call, "model_name") or keyword(call, "name") or (call.args[0] if call.args else None)
    return [named] if named is not None else []


def _tables_of(name: str, file: str, models: Models) -> Iterator[LegacyTable]:
    for label in models.apps.labels(file):
        model = models.apps.model(label, name)
        yield from model.tables if model is not None else ()


def _table_option(call: ast.Call) -> ast.expr | None:
    """`options={"db_table": …}` of a model that is created, the new name in AlterModelTable."""
    if last_name(call.func) == "AlterModelTable":
        return keyword(call, "table") or (call.args[1] if len(call.args) > 1 else None)
    options = keyword(call, "options")
    if not isinstance(options, ast.Dict):
        return None
    pairs = zip(options.keys, options.values, strict=True)
    return next((value for key, value in pairs if isinstance(key, ast.Constant) and key.value == "db_table"), None)
