"""What becomes of a write: capture's rules before the switch, the gate's after it."""

from __future__ import annotations

from collections.abc import Iterator

from tripstore.audit.preflight.company import Cascade, Company, CompanyRelation, RelationRole
from tripstore.audit.preflight.effects import RelationWrite, Verb
from tripstore.audit.preflight.grammar import Name
from tripstore.audit.preflight.verdicts import (
    AFTER,
    ALWAYS,
    BEFORE,
    CAPTURED,
    SWITCHED,
    StatementVerdict,
    VerdictReason,
)
from tripstore.backends.postgres.layout.layout import DeletePolicy, Layout, MappedColumn, RefKeyKind, TableName
from tripstore.backends.postgres.sqlstates import (
    DELETE_REFUSED,
    FACT_CHANGED,
    GATE_SHUT,
    KEY_CHANGED,
    PAIR_CHANGED,
    TRUNCATE_REFUSED,
    WRONG_PARENT,
)
from tripstore.phase import Phase

#: What `make bench` prints of its engine `postgres`.
SHARE = "one row takes 1.2 (by an ORM) to 1.7 times as long"
BULK_SHARE = "100 rows in one UPDATE take about 7 times as long"
_COPY_FORMAT = "22P04"


def write_reasons(write: RelationWrite, company: Company) -> Iterator[VerdictReason]:
    """Everything that speaks against a write, and against what it sets off."""
    yield from _of(write, company.relation(write.relation), company, frozenset())


def _of(
    write: RelationWrite, relation: CompanyRelation, company: Company, seen: frozenset[str]
) -> Iterator[VerdictReason]:
    """`seen`: tables that a cascade has come through."""
    match relation.role:
        case RelationRole.MAPPED if relation.column is not None:
            yield from _mapped(write, relation, relation.column, company)
        case RelationRole.VIEW:
            shown = ", ".join(sorted(relation.shows))
            yield VerdictReason(
                StatementVerdict.UNCLEAR, ALWAYS, f"{relation.name} is a view of {shown}: judge what it writes there"
            )
        case RelationRole.UNKNOWN:
            why = "no such relation is in the database" if company.is_asked else "it is not in the layout"
            yield VerdictReason(
                StatementVerdict.UNCLEAR, ALWAYS, f"{relation.name} may be a view, or have triggers or cascades: {why}"
            )
    if relation.lookups:
        yield from _pairs(write, relation, company)
    yield from _triggers(write, relation)
    yield from _cascades(write, relation, company, seen)


# ------------------------------------------------------------------------------------------------- mapped rows


def _mapped(
    write: RelationWrite, relation: CompanyRelation, column: MappedColumn, company: Company
) -> Iterator[VerdictReason]:
    yield from _after_the_switch(relation, company)
    match write.verb:
        case Verb.INSERT:
            yield from _insert(write, relation, column, company)
        case Verb.UPDATE:
            yield from _update(write, relation, column, company.layout)
        case Verb.DELETE:
            yield from _delete(write, relation, column, company)
        case Verb.TRUNCATE:
            yield from _truncate(relation, company)


def _after_the_switch(relation: CompanyRelation, company: Company) -> Iterator[VerdictReason]:
    """A trigger of statements looks at the gate, so that it does not matter whether there are rows."""
    if company.warns:
        text = f"a write to {relation.name} goes to Postgres alone, with a warning: nothing else sees it"
        yield VerdictReason(StatementVerdict.UNSERVED, AFTER, text)
        yield VerdictReason(
            StatementVerdict.REFUSED, (Phase.COMPLETE,), f"{relation.name} takes no more writes", GATE_SHUT
        )
    else:
        text = f"{relation.name} takes no writes by SQL: Schemaless is the authority"
        yield VerdictReason(StatementVerdict.REFUSED, SWITCHED, text, GATE_SHUT)


def _insert(
    write: RelationWrite, relation: CompanyRelation, column: MappedColumn, company: Company
) -> Iterator[VerdictReason]:
    if write.is_copy and not write.has_columns:
        if relation.added:
            text = f"COPY without a list of columns misses {', '.join(relation.added)}, which `schema apply` adds"
            yield VerdictReason(StatementVerdict.REFUSED, BEFORE, f"{text} to {relation.name}", _COPY_FORMAT)
        elif relation.added is None:
            text = f"COPY without a list of columns fails if `schema apply` adds one to {relation.name}"
            yield VerdictReason(StatementVerdict.UNCLEAR, BEFORE, text)
    if column.is_child and column.uuid in write.columns:
        text = f"{column.uuid} of {relation.name} must be its parent's: left out, it is filled"
        yield VerdictReason(StatementVerdict.UNCLEAR, BEFORE, text)
    yield from _version(write, relation, column)
    yield VerdictReason(StatementVerdict.SLOWED, BEFORE, f"capture logs each row of {relation.name}: {SHARE}")


def _update(
    write: RelationWrite, relation: CompanyRelation, column: MappedColumn, layout: Layout
) -> Iterator[VerdictReason]:
    moved = [name for name in write.columns if name not in write.unchanged]
    keys = [name for name in moved if name in layout.keys_of(column)]
    met = ", when it meets a row" if write.is_on_conflict else ""
    if keys and column.takes_new_keys:
        yield from _moved(keys, relation, column, met)
    elif keys:
        text = f"{', '.join(keys)} of {relation.name} never changes; it is refused where the value is another{met}"
        yield VerdictReason(StatementVerdict.REFUSED, BEFORE, text, KEY_CHANGED)
    captured = [name for name in write.columns if name in column.captured]
    if column.ref_key.kind is RefKeyKind.FACT:
        yield from _fact(write, relation, captured, met)
        return
    yield from _version(write, relation, column)
    if captured:
        yield VerdictReason(StatementVerdict.SLOWED, BEFORE, _versions(write, relation, column, layout))
    elif any(each.is_before_row and Verb.UPDATE in each.events for each in relation.triggers):
        text = f"a trigger of {relation.name} may change mapped columns: then the row gets a version ({SHARE})"
        yield VerdictReason(StatementVerdict.SLOWED, BEFORE, text)


def _moved(keys: list[str], relation: CompanyRelation, column: MappedColumn, met: str) -> Iterator[VerdictReason]:
    """A child row that gets another number or parent."""
    if column.uuid not in keys:
        text = f"a row of {relation.name} with another {', '.join(keys)} leaves a tombstone and begins anew{met}"
        yield VerdictReason(StatementVerdict.SLOWED, BEFORE, f"{text}: two changes are logged and mirrored")
    elif column.parent in keys:
        text = f"{column.uuid} of {relation.name} must be its parent's: left out, it is filled{met}"
        yield VerdictReason(StatementVerdict.UNCLEAR, BEFORE, text)
    else:
        text = f"{column.uuid} of {relation.name} is its parent's; another one is refused{met}"
        yield VerdictReason(StatementVerdict.REFUSED, BEFORE, text, WRONG_PARENT)


def _fact(write: RelationWrite, relation: CompanyRelation, captured: list[str], met: str) -> Iterator[VerdictReason]:
    changed = [name for name in captured if name not in write.unchanged]
    text = f"rows of {relation.name} are facts: {', '.join(changed or captured)} never changes{met}"
    if changed:
        yield VerdictReason(StatementVerdict.REFUSED, BEFORE, text, FACT_CHANGED)
    elif captured:
        # 1.10 is equal to 1.1, and another value to capture.
        yield VerdictReason(StatementVerdict.UNCLEAR, BEFORE, f"{text}; equal values may be written otherwise")
    elif any(each.is_before_row and Verb.UPDATE in each.events for each in relation.triggers):
        text = f"rows of {relation.name} are facts, and a trigger of it may change them"
        yield VerdictReason(StatementVerdict.UNCLEAR, BEFORE, text)


def _version(write: RelationWrite, relation: CompanyRelation, column: MappedColumn) -> Iterator[VerdictReason]:
    version = column.ref_key.version
    if version is not None and version in write.columns:
        text = f"capture counts {version} of {relation.name} itself, whatever is written: code that locks by it breaks"
        yield VerdictReason(StatementVerdict.UNCLEAR, BEFORE, text)


def _versions(write: RelationWrite, relation: CompanyRelation, column: MappedColumn, layout: Layout) -> str:
    if write.is_on_conflict or _is_one_row(write, column, layout):
        return f"capture logs the row of {relation.name}: {SHARE}"
    return f"each changed row of {relation.name} is a version, logged and mirrored one by one; {BULK_SHARE}"


def _is_one_row(write: RelationWrite, column: MappedColumn, layout: Layout) -> bool:
    """Whether the condition is a key of ours; a child's own key is not known here."""
    if column.parent is None:
        return bool(write.pins & {layout.row_key.id, column.uuid})
    return bool(write.pins & {column.parent, column.uuid}) and column.ref_key.column in write.pins


def _delete(
    write: RelationWrite, relation: CompanyRelation, column: MappedColumn, company: Company
) -> Iterator[VerdictReason]:
    if column.on_delete is DeletePolicy.FORBID:
        text = f"rows of {relation.name} are not deleted: the layout says on_delete: forbid"
        yield VerdictReason(StatementVerdict.REFUSED, BEFORE, text, DELETE_REFUSED)
    elif column.ref_key.kind is RefKeyKind.FACT:
        text = f"rows of {relation.name} are facts: they go only with their parent"
        yield VerdictReason(StatementVerdict.REFUSED, BEFORE, text, DELETE_REFUSED)
    else:
        yield VerdictReason(
            StatementVerdict.SLOWED, BEFORE, f"each row of {relation.name} leaves a tombstone, logged and mirrored"
        )
    if not column.is_child and not company.is_asked and company.layout.children:
        children = ", ".join(sorted(str(each.table) for each in company.layout.children))
        yield VerdictReason(
            StatementVerdict.UNCLEAR, BEFORE, f"whether it cascades to {children} is known by the database alone"
        )


def _truncate(relation: CompanyRelation, company: Company) -> Iterator[VerdictReason]:
    if company.may_truncate:
        text = f"TRUNCATE of {relation.name} is allowed: capture is broken by it, and a backfill has to begin anew"
        yield VerdictReason(StatementVerdict.BREAKS, BEFORE, text)
    else:
        text = f"{relation.name} is not truncated: every row would have to become a tombstone"
        yield VerdictReason(StatementVerdict.REFUSED, CAPTURED, text, TRUNCATE_REFUSED)


# ------------------------------------------------------------------------------------------------ other rows


def _pairs(write: RelationWrite, relation: CompanyRelation, company: Company) -> Iterator[VerdictReason]:
    """The rows that cells hold UUIDs of. Their rules hold as long as capture stands."""
    names = {name for lookup in relation.lookups for name in (lookup.key, lookup.value)}
    moved = [name for name in write.columns if name in names and name not in write.unchanged]
    if write.verb is Verb.UPDATE and moved:
        text = f"{', '.join(moved)} of {relation.name} is half of a pair that never changes"
        yield VerdictReason(StatementVerdict.REFUSED, CAPTURED, text, PAIR_CHANGED)
    if write.verb is Verb.TRUNCATE and relation.role is RelationRole.LOOKUP and not company.may_truncate:
        text = f"{relation.name} is not truncated: cells point to its rows"
        yield VerdictReason(StatementVerdict.REFUSED, CAPTURED, text, TRUNCATE_REFUSED)


def _triggers(write: RelationWrite, relation: CompanyRelation) -> Iterator[VerdictReason]:
    for trigger in relation.triggers:
        if trigger.may_reach and write.verb in trigger.events:
            text = f"{trigger.name} of {relation.name} may touch mapped tables when it runs: read what it does"
            yield VerdictReason(StatementVerdict.UNCLEAR, ALWAYS, text)


def _cascades(
    write: RelationWrite, relation: CompanyRelation, company: Company, seen: frozenset[str]
) -> Iterator[VerdictReason]:
    if write.verb is Verb.TRUNCATE:
        if write.cascades and relation.role is not RelationRole.UNKNOWN:
            for table in relation.truncates:
                target = company.table(table)
                yield from _of(RelationWrite(Verb.TRUNCATE, _name(table)), target, company, seen)
        if write.cascades and not company.is_asked:
            yield VerdictReason(
                StatementVerdict.UNCLEAR, ALWAYS, "what CASCADE takes along is known by the database alone"
            )
        return
    moved = frozenset(name for name in write.columns if name not in write.unchanged)
    for cascade in relation.cascades:
        is_met = cascade.event is write.verb and (write.verb is Verb.DELETE or bool(cascade.columns & moved))
        if is_met and str(cascade.table) not in seen | {relation.name}:
            through = seen | {relation.name}
            yield from _cascaded(cascade, relation, company, through)


def _cascaded(
    cascade: Cascade, relation: CompanyRelation, company: Company, seen: frozenset[str]
) -> Iterator[VerdictReason]:
    """Postgres changes these rows by statements of its own, which meet the same triggers."""
    target = company.table(cascade.table)
    # Facts go with their parent: that is no deletion of theirs.
    is_parents = relation.column is not None and not relation.column.is_child and cascade.verb is Verb.DELETE
    kind = target.column.ref_key.kind if target.column is not None else None
    for reason in _of(RelationWrite(cascade.verb, _name(cascade.table), cascade.changed), target, company, seen):
        is_with_parent = is_parents and kind is RefKeyKind.FACT and reason.sqlstate == DELETE_REFUSED
        if is_with_parent and target.column is not None and target.column.on_delete is not DeletePolicy.FORBID:
            continue
        yield VerdictReason(
            reason.verdict, reason.phases, f"by a cascade from {relation.name}: {reason.text}", reason.sqlstate
        )


def _name(table: TableName) -> Name:
    return Name(table.schema, table.name)
