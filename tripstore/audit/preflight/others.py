"""What becomes of statements that are neither a query nor a change of rows: locks, DDL, transactions, code."""

from __future__ import annotations

from collections.abc import Iterator

from tripstore.audit.names import words
from tripstore.audit.preflight.company import Company, CompanyRelation, RelationRole
from tripstore.audit.preflight.effects import RelationWrite, Verb
from tripstore.audit.preflight.grammar import Name, TreeNode
from tripstore.audit.preflight.verdicts import ALWAYS, BEFORE, CAPTURED, SWITCHED, StatementVerdict, VerdictReason
from tripstore.audit.preflight.writes import write_reasons
from tripstore.backends.postgres.names import SCHEMA

#: They touch no row, and nothing that capture stands on.
_HARMLESS = words(
    "VariableShowStmt FetchStmt ClosePortalStmt DeallocateStmt ListenStmt UnlistenStmt NotifyStmt CheckPointStmt "
    "DiscardStmt VacuumStmt ReindexStmt ClusterStmt ConstraintsSetStmt GrantStmt GrantRoleStmt CommentStmt "
    "CreateRoleStmt AlterRoleStmt AlterRoleSetStmt DropRoleStmt AlterSystemStmt AlterDatabaseSetStmt CreateSchemaStmt "
    "CreateSeqStmt AlterSeqStmt CreateStatsStmt AlterStatsStmt CreateFunctionStmt AlterFunctionStmt DefineStmt "
    "CreateEnumStmt CompositeTypeStmt CreateDomainStmt CreateExtensionStmt SecLabelStmt IndexStmt LoadStmt "
    "AlterDefaultPrivilegesStmt RefreshMatViewStmt ReturnStmt"
)
#: Of ALTER TABLE: what leaves rows, triggers and mapped columns as they are.
_HARMLESS_ALTER = words(
    "AT_AddColumn AT_ColumnDefault AT_SetStatistics AT_SetOptions AT_ResetOptions AT_SetStorage AT_SetCompression "
    "AT_AddIndex AT_AddConstraint AT_AddIndexConstraint AT_ValidateConstraint AT_ClusterOn AT_DropCluster "
    "AT_SetTableSpace AT_SetRelOptions AT_ResetRelOptions AT_ChangeOwner AT_ReplicaIdentity AT_SetNotNull "
    "AT_SetLogged"
)
_OF_A_COLUMN = frozenset({"AT_DropColumn", "AT_AlterColumnType"})
_BREAKING = {
    "AT_AttachPartition": "capture does not see the rows that come with the partition",
    "AT_DetachPartition": "rows go without a tombstone",
    "AT_AddInherit": "capture does not see rows of heirs",
    "AT_SetUnLogged": "a crash empties the table, and capture does not see it",
}
#: LOCK TABLE … IN ROW EXCLUSIVE and above stands in the way of writers, the facade and the mirror among them.
_ROW_EXCLUSIVE = 3
_ADVICE = "Postgres takes it; ask `tripstore schema plan` and `doctor` first"


def other_reasons(statement: TreeNode, company: Company) -> Iterator[VerdictReason]:
    """Everything that speaks against a statement of another kind; what is not known is unclear."""
    match statement.kind:
        case "TransactionStmt":
            yield from _transaction(statement)
        case "VariableSetStmt":
            if statement.text("name").startswith(f"{SCHEMA}."):
                text = f"{statement.text('name')} is tripstore's own: capture takes the session for one of ours"
                yield VerdictReason(StatementVerdict.UNCLEAR, ALWAYS, text)
        case "LockStmt":
            yield from _lock(statement, company)
        case "TruncateStmt":
            is_cascading = statement.text("behavior") == "DROP_CASCADE"
            for table in statement.every("relations"):
                yield from write_reasons(RelationWrite(Verb.TRUNCATE, table.relation, cascades=is_cascading), company)
        case "AlterTableStmt":
            yield from _alter(statement, company)
        case "RenameStmt" | "AlterObjectSchemaStmt":
            yield from _rename(statement, company)
        case "DropStmt":
            yield from _drop(statement, company)
        case "CreateStmt":
            yield from _create(statement, company)
        case "CreateTrigStmt" | "RuleStmt":
            relation = _relation(statement, company)
            if _matters(relation):
                text = f"it runs with every write of {relation.name}, capture's and the mirror's too: {_ADVICE}"
                yield VerdictReason(StatementVerdict.UNCLEAR, CAPTURED, text)
        case "DoStmt" | "CallStmt":
            yield VerdictReason(
                StatementVerdict.UNCLEAR, ALWAYS, "what its code does is not looked at: judge the statements in it"
            )
        case kind if kind not in _HARMLESS:
            yield VerdictReason(
                StatementVerdict.UNCLEAR, ALWAYS, f"statements of this kind ({kind}) are not known here"
            )


def _transaction(statement: TreeNode) -> Iterator[VerdictReason]:
    if statement.text("kind") == "TRANS_STMT_PREPARE":
        text = "if it wrote mapped tables it is inside the gate until COMMIT PREPARED: no switch gets past it"
        yield VerdictReason(StatementVerdict.UNCLEAR, BEFORE, text)


def _lock(statement: TreeNode, company: Company) -> Iterator[VerdictReason]:
    for table in statement.every("relations"):
        relation = company.relation(table.relation)
        if relation.role is not RelationRole.MAPPED:
            continue
        if statement.number("mode") >= _ROW_EXCLUSIVE:
            text = f"the facade's puts to {relation.name} wait for it; what it writes after a switch is refused"
            yield VerdictReason(StatementVerdict.SLOWED, BEFORE, text)
        text = f"a lock of {relation.name} in Postgres locks no cell, and the mirror waits for it"
        yield VerdictReason(StatementVerdict.UNSERVED, SWITCHED, text)


def _alter(statement: TreeNode, company: Company) -> Iterator[VerdictReason]:
    relation = _relation(statement, company)
    if not _matters(relation):
        return
    for command in statement.every("cmds"):
        kind, name = command.text("subtype"), command.text("name")
        if kind in _HARMLESS_ALTER:
            continue
        if kind in _OF_A_COLUMN:
            if name in _needed(relation, company):
                yield _of_a_column(command, name, relation)
        elif kind == "AT_DropNotNull":
            if name in _needed(relation, company):
                yield VerdictReason(
                    StatementVerdict.UNCLEAR, CAPTURED, f"{name} of {relation.name} may lead to the row key: {_ADVICE}"
                )
        elif kind in _BREAKING:
            yield VerdictReason(StatementVerdict.BREAKS, CAPTURED, f"{relation.name}: {_BREAKING[kind]}; {_ADVICE}")
        elif kind.startswith(("AT_DisableTrig", "AT_EnableTrig")):
            yield VerdictReason(
                StatementVerdict.BREAKS, CAPTURED, f"capture's triggers on {relation.name} stay ENABLE ALWAYS"
            )
        else:
            yield VerdictReason(StatementVerdict.UNCLEAR, CAPTURED, f"{kind[3:]} of {relation.name}: {_ADVICE}")


def _of_a_column(command: TreeNode, name: str, relation: CompanyRelation) -> VerdictReason:
    """Triggers of ours stand on the column, which Postgres knows: it drops them only when told to."""
    if command.text("subtype") == "AT_AlterColumnType":
        return VerdictReason(
            StatementVerdict.REFUSED, CAPTURED, f"triggers of capture stand on {name} of {relation.name}", "0A000"
        )
    if command.text("behavior") == "DROP_CASCADE":
        text = f"CASCADE takes the triggers of capture along that stand on {name} of {relation.name}"
        return VerdictReason(StatementVerdict.BREAKS, CAPTURED, text)
    return VerdictReason(
        StatementVerdict.REFUSED, CAPTURED, f"triggers of capture stand on {name} of {relation.name}", "2BP01"
    )


def _rename(statement: TreeNode, company: Company) -> Iterator[VerdictReason]:
    relation = _relation(statement, company)
    if not _matters(relation):
        return
    if statement.text("renameType") == "OBJECT_COLUMN":
        if statement.text("subname") in _needed(relation, company):
            text = f"{statement.text('subname')} of {relation.name} is known by its name: {_ADVICE}"
            yield VerdictReason(StatementVerdict.BREAKS, CAPTURED, text)
    elif statement.text("renameType") in ("OBJECT_TABLE", ""):
        yield VerdictReason(StatementVerdict.BREAKS, CAPTURED, f"{relation.name} is known by its name: {_ADVICE}")


def _drop(statement: TreeNode, company: Company) -> Iterator[VerdictReason]:
    kind = statement.text("removeType")
    if kind == "OBJECT_TABLE":
        for each in statement.every("objects"):
            parts = [part.text("sval") for part in each.every("items")]
            relation = company.relation(Name(parts[-2] if len(parts) > 1 else None, parts[-1]))
            if _matters(relation):
                yield VerdictReason(
                    StatementVerdict.BREAKS, CAPTURED, f"{relation.name} goes, and its rows without a tombstone"
                )
            elif relation.role is RelationRole.UNKNOWN and statement.text("behavior") == "DROP_CASCADE":
                yield VerdictReason(
                    StatementVerdict.UNCLEAR, CAPTURED, "what CASCADE takes along is known by the database alone"
                )
    elif kind in ("OBJECT_SCHEMA", "OBJECT_INDEX", "OBJECT_TRIGGER", "OBJECT_TYPE", "OBJECT_FUNCTION"):
        yield VerdictReason(
            StatementVerdict.UNCLEAR, CAPTURED, f"whether capture or a key stands on it is not known: {_ADVICE}"
        )


def _create(statement: TreeNode, company: Company) -> Iterator[VerdictReason]:
    for above in statement.every("inhRelations"):
        relation = company.relation(above.relation)
        if not _matters(relation):
            continue
        if statement.has("partbound"):
            text = f"the new partition of {relation.name} has a gate once a worker or `schema apply` has looked"
            yield VerdictReason(StatementVerdict.UNCLEAR, CAPTURED, text)
        else:
            yield VerdictReason(
                StatementVerdict.BREAKS, CAPTURED, f"{relation.name}: {_BREAKING['AT_AddInherit']}; {_ADVICE}"
            )


def _needed(relation: CompanyRelation, company: Company) -> frozenset[str]:
    """The columns of a table that the migration stands on."""
    names = {name for lookup in relation.lookups for name in (lookup.key, lookup.value)}
    column = relation.column
    if column is not None:
        names |= company.layout.keys_of(column) | set(column.captured)
        names |= {column.ref_key.version} if column.ref_key.version is not None else set()
    return frozenset(names)


def _relation(statement: TreeNode, company: Company) -> CompanyRelation:
    found = statement.find("relation")
    return company.relation(found.relation) if found is not None else CompanyRelation("", RelationRole.OTHER)


def _matters(relation: CompanyRelation) -> bool:
    return relation.role in (RelationRole.MAPPED, RelationRole.LOOKUP)
