"""The keywords of Postgres that say where in a statement a table stands."""

from __future__ import annotations

from tripstore.audit.names import words

VERBS = words("select insert update delete with copy merge truncate lock alter create drop table values")
DIRECTIVES = words(
    "explain analyze analyse vacuum refresh declare prepare do call grant revoke comment begin start set "
    "reindex cluster execute import"
)
CLAUSES = words("from join left right inner outer cross full natural where and or union except intersect into using on")
#: Words that a piece of a statement begins with, and a sentence hardly ever.
PIECES = words("from join left right inner cross full union except intersect where")
#: Words that end a list of tables.
AFTER_FROM = words("where group order having limit offset fetch for window set returning values do when loop")
#: Words after a table that are no alias of it.
NO_ALIAS = AFTER_FROM | CLAUSES | VERBS | words("lateral only as tablesample default overriding then")
FROM_OF_FUNCTIONS = words("extract substring trim overlay position")
NO_STATEMENT_BEFORE_UPDATE = words("for key do on before after or of grant revoke") | {","}
#: Before INTO: with those of MySQL and SQLite, INSERT IGNORE INTO and REPLACE INTO.
PUTS = words("insert merge replace ignore")
SCHEMA_VERBS = words("alter create drop comment grant revoke reindex cluster vacuum analyze analyse lock")
RIGHTS = frozenset({"grant", "revoke"})
SCHEMA_TARGETS = words("table on references of inherits like")
LISTS = words("truncate lock vacuum analyze analyse cluster drop")
PREFIXES = words("if not exists only column concurrently table full verbose freeze analyze analyse")
