"""Which tables an SQL text uses, and how. It knows where tables stand in statements; it checks no grammar.

A text may be many statements, one, or a piece of one. Names of common table expressions hide tables of the same name.
"""

from __future__ import annotations

from tripstore.audit.findings import Access, UseKind
from tripstore.audit.names import LegacyTables
from tripstore.audit.sql.cursor import END, Cursor
from tripstore.audit.sql.found import SqlUse, SqlUses
from tripstore.audit.sql.frames import Frame, Source
from tripstore.audit.sql.keywords import (
    AFTER_FROM,
    DIRECTIVES,
    FROM_OF_FUNCTIONS,
    LISTS,
    NO_STATEMENT_BEFORE_UPDATE,
    PIECES,
    PREFIXES,
    PUTS,
    RIGHTS,
    SCHEMA_TARGETS,
    SCHEMA_VERBS,
    VERBS,
)
from tripstore.backends.postgres.tokens import Token, Type, tokens


def sql_uses(text: str, tables: LegacyTables, *, is_certain: bool, is_prose: bool = False) -> SqlUses:
    """Look through a text. Unless it is certainly SQL it must look like it; a text that is probably prose more so."""
    everything = list(tokens(text))
    comments = [token for token in everything if token.type is Type.COMMENT]
    found = _Reader([token for token in everything if token.type is not Type.COMMENT], tables).read()
    found.comments = comments
    if not is_certain:
        first = next((token for token in everything if token.type is Type.WORD), END)
        if not _looks_like_sql(first, is_prose=is_prose):
            # A piece of a statement, or a sentence: only keywords in capitals are believed.
            found.uses = [use for use in found.uses if use.keyword.isupper() and not is_prose]
            found.unclear = []
    return found


def _looks_like_sql(first: Token, *, is_prose: bool) -> bool:
    if is_prose:
        return first.value in VERBS and first.raw.isupper()
    return first.value in VERBS | DIRECTIVES or (first.value in PIECES and not first.raw.istitle())


class _Reader(Cursor):
    """One pass over the tokens of a text."""

    def __init__(self, found: list[Token], tables: LegacyTables) -> None:
        super().__init__(found)
        self._tables = tables
        self._frames = [Frame()]
        self._answer = SqlUses()
        self._expects = False
        self._hidden: list[tuple[str, int, int]] = []  # names of common table expressions, from, to

    def read(self) -> SqlUses:
        begin = 0
        while self.at < len(self.tokens):
            if self.tokens[self.at].value == ";" and len(self._frames) == 1:
                self._answer.statements.append((begin, self.tokens[self.at].offset))
                begin = self.tokens[self.at].offset + 1
            self._step()
        while self._frames:
            self._close(self._frames.pop())
        self._answer.statements.append((begin, 1 << 60))
        self._answer.uses = _distinct(self._answer.uses)
        return self._answer

    # -------------------------------------------------------------------------------------------- tokens

    def _step(self) -> None:
        token, frame = self.peek(), self._frames[-1]
        if token.value == "(" and token.type is Type.OTHER:
            self._open(frame)
        elif token.value == ")" and token.type is Type.OTHER:
            self._expects = False
            if len(self._frames) > 1:
                self._close(self._frames.pop())
            self.at += 1
        elif token.value == ";" and token.type is Type.OTHER:
            while self._frames:
                self._close(self._frames.pop())
            self._frames, self._expects, self._hidden = [Frame()], False, []
            self.at += 1
        elif self._expects:
            self._table_of_list(frame)
        elif token.type is Type.WORD:
            self._keyword(frame, token.value)
        elif token.type is Type.TEXT and frame.verb in ("create", "do"):
            self._body(token)
        else:
            self._punctuation(frame, token)

    def _open(self, frame: Frame) -> None:
        inner = Frame(self.word(-1), self.at, is_existence=self.word(-1) == "exists")
        # FROM (trips JOIN notes …): a list of tables in brackets.
        if self._expects:
            inner.lists_tables = self.word(1) not in VERBS
            self._expects = inner.lists_tables
        self._frames.append(inner)
        self.at += 1

    def _punctuation(self, frame: Frame, token: Token) -> None:
        if token.value == "," and frame.lists_tables:
            self._expects = True
        elif token.value == "*" and frame.in_columns:
            self._star(frame)
        self.at += 1

    def _star(self, frame: Frame) -> None:
        """A star that means all columns, neither a product nor count(*)."""
        before, after = self.peek(-1), self.peek(1)
        if before.value == ".":
            frame.stars.add(self.peek(-2).value)
        elif before.value in ("select", "all", "distinct", ",", "returning"):
            frame.stars.add("")
        elif before.value == ")" and after.value in ("from", ",", "into", ""):
            frame.stars.add("")  # SELECT DISTINCT ON (…) *

    # ------------------------------------------------------------------------------------------ keywords

    def _keyword(self, frame: Frame, word: str) -> None:
        before, after = self.word(-1), self.word(1)
        self.at += 1
        if word in ("union", "except", "intersect"):
            self._close(frame)
        elif word == "select" and frame.verb not in RIGHTS:
            frame.verb = frame.verb if frame.verb == "insert" else "select"
            frame.in_columns, frame.lists_tables = True, False
        elif word == "with":
            self._common_tables()
        elif word == "from":
            self._from(frame, before)
        elif word == "join" or (word == "using" and frame.verb in ("delete", "merge")):
            frame.lists_tables = self._expects = True
        elif word == "into" and frame.verb in ("insert", "merge", "select"):
            self._into(frame)
        elif word in PUTS and after == "into":
            self._begin(frame, "merge" if word == "merge" else "insert")
        elif word == "delete" and after == "from":
            self._begin(frame, word)
            self.at += 1
            self._target(frame, UseKind.SQL_DELETE)
        elif word == "update" and before not in NO_STATEMENT_BEFORE_UPDATE:
            self._update(frame)
        elif word == "returning":
            self._close(frame, keeps_sources=frame.verb != "insert")
            frame.in_columns = frame.returns = True
        elif word == "copy" and not frame.verb:
            self._copy(frame)
        elif word == "truncate" and not frame.verb:
            self._begin(frame, word)
            self._list(UseKind.SQL_TRUNCATE)
        elif word == "table" and not frame.verb:
            self._target(frame, UseKind.SQL_SELECT_STAR, Access.READ)
        elif word in SCHEMA_VERBS and not frame.verb and (word in RIGHTS or after not in VERBS - {"table"}):
            self._begin(frame, word)
            if word in LISTS:
                self._list(UseKind.SQL_SCHEMA)
        elif word == "do" and not frame.verb:
            self._begin(frame, word)
        elif self._frames[0].verb in SCHEMA_VERBS and not frame.in_columns and _names_target(word, before):
            self._schema_target(word)
        elif word in AFTER_FROM:
            frame.lists_tables = False

    def _begin(self, frame: Frame, verb: str) -> None:
        frame.verb, frame.lists_tables, frame.in_columns = verb, False, False

    def _from(self, frame: Frame, before: str) -> None:
        if frame.opener in FROM_OF_FUNCTIONS and frame.verb != "select":
            return
        if before == "distinct" and self.word(-3) in ("is", "not"):
            return
        if frame.verb in SCHEMA_VERBS and frame.verb != "create":
            return
        frame.in_columns = False
        frame.lists_tables = self._expects = True

    def _common_tables(self) -> None:
        """Remember names that common table expressions take, from where they are known to where they end."""
        is_recursive = self.word() == "recursive"
        at = self.at + is_recursive
        end = self.closings.get(self._frames[-1].opening, len(self.tokens))
        while (found := self.common_table(at)) is not None:
            name, opening, closing = found
            self._hidden.append((name, opening if is_recursive else closing, end))
            at = closing + 2
            if closing + 1 >= len(self.tokens) or self.tokens[closing + 1].value != ",":
                break

    def _into(self, frame: Frame) -> None:
        if frame.verb == "merge":
            self._target(frame, UseKind.SQL_MERGE)
        elif frame.verb == "insert":
            self._target(frame, UseKind.SQL_INSERT)
            if frame.target is not None:
                self._insert_columns(frame.target)
        else:
            self._target(frame, UseKind.SQL_INSERT)
            frame.target = None

    def _insert_columns(self, target: Source) -> None:
        if self.word() == "as":
            self.at += 2
        word, after = self.word(), self.word(1)
        is_query = word == "(" and after in ("select", "with", "values", "table", "(")
        if word in ("values", "select", "with", "table", "overriding") or is_query:
            self._change(target.use, UseKind.SQL_INSERT_WITHOUT_COLUMNS)

    def _update(self, frame: Frame) -> None:
        """Of a sentence, "update trips tonight", this is none."""
        mark = self.at
        offset, keyword = self.peek(-1), self.peek(-1).raw
        self.skip({"only"})
        name = self.name()
        if name is None:
            return
        schema, table, token = name
        if self.word() == "*":
            self.at += 1
        self.skip({"as"})
        alias = self.alias()
        if self.word() == "set" or self.peek().type is Type.HOLE or (self.peek() is END and keyword.isupper()):
            self._begin(frame, "update")
            frame.target = self._use(schema, table, token, alias, UseKind.SQL_UPDATE, Access.WRITE, offset.raw)
        else:
            self.at = mark

    def _copy(self, frame: Frame) -> None:
        if self.word() == "(":
            return  # COPY (SELECT …): the query says it
        keyword = self.peek(-1).raw
        name = self.name()
        if name is None:
            return
        has_columns = self.word() == "("
        if has_columns:
            self.at = self.closings.get(self.at, self.at) + 1
        access = {"from": Access.WRITE, "to": Access.READ}.get(self.word())
        if access is None and not (has_columns or self.peek().type is Type.HOLE or self.peek() is END):
            return
        kind = UseKind.SQL_COPY if has_columns else UseKind.SQL_COPY_WITHOUT_COLUMNS
        self._use(*name, "", kind, access or Access.UNKNOWN, keyword)
        self._begin(frame, "copy")
        self.at += 1

    def _list(self, kind: UseKind) -> None:
        """Tables after a verb: TRUNCATE a, b."""
        raw = self.peek(-1).raw
        if self.word() == "(":
            self.at = self.closings.get(self.at, self.at) + 1
        self.skip(PREFIXES)
        if self.word() in ("index", "view", "trigger", "function", "policy", "sequence", "materialized", "rule"):
            return
        while (name := self.name()) is not None:
            self._use(*name, "", kind, Access.WRITE, raw)
            if self.word() != ",":
                break
            self.at += 1
            self.skip({"only"})

    def _schema_target(self, word: str) -> None:
        raw = self.peek(-1).raw
        self.skip(PREFIXES)
        if word == "inherits" and self.word() == "(":
            self.at += 1
        if word == "on" and self.word() in ("delete", "update"):
            return
        name = self.name()
        if name is None:
            return
        schema, table, token = name
        if schema is not None and word in ("on", "by") and self._tables.find(None, schema) is not None:
            # COMMENT ON COLUMN trips.fare; CREATE SEQUENCE … OWNED BY trips.id
            self._use(None, schema, token, "", UseKind.SQL_SCHEMA, Access.WRITE, raw)
        else:
            self._use(schema, table, token, "", UseKind.SQL_SCHEMA, Access.WRITE, raw)

    # -------------------------------------------------------------------------------------------- tables

    def _table_of_list(self, frame: Frame) -> None:
        self._expects = False
        keyword = self._keyword_before()
        self.skip({"only", "lateral"})
        if self.word() == "(" or self.word() in VERBS:
            self._expects = self.word() == "("
            return
        mark = self.at
        name = self.name()
        if name is None:
            self.at = mark
            if self.peek().type is not Type.WORD:
                self.at += 1
            return
        schema, table, token = name
        if self.word() == "(":
            return  # a function
        if self.word() == "*":
            self.at += 1
        self.skip({"as"})
        source = self._use(schema, table, token, self.alias(), UseKind.SQL_SELECT, Access.READ, keyword)
        if source is not None:
            frame.sources.append(source)

    def _keyword_before(self) -> str:
        """The word that made us expect a table; in a list it is before the first."""
        for index in range(self.at - 1, -1, -1):
            if self.tokens[index].value in ("from", "join", "using"):
                return self.tokens[index].raw
        return ""

    def _target(self, frame: Frame, kind: UseKind, access: Access = Access.WRITE) -> None:
        keyword = self.peek(-1).raw
        self.skip({"only", "table"})
        name = self.name()
        frame.target = None
        if name is None or self.word() == "." or (kind is UseKind.SQL_SELECT_STAR and not keyword.isupper()):
            return
        mark = self.at
        self.skip({"as"})
        alias = self.alias()
        if kind is UseKind.SQL_INSERT:
            self.at = mark
        frame.target = self._use(*name, alias, kind, access, keyword)

    def _use(
        self, schema: str | None, name: str, token: Token, alias: str, kind: UseKind, access: Access, keyword: str
    ) -> Source | None:
        if token.type is Type.HOLE:
            self._answer.unclear.append(token.offset)
            return None
        table = self._tables.find(schema, name)
        if table is None or (schema is None and self._is_hidden(name)):
            return None
        number = len(self._answer.statements)
        self._answer.uses.append(SqlUse(token.offset, table, kind, access, keyword, number))
        return Source(len(self._answer.uses) - 1, frozenset({alias or name}))

    def _is_hidden(self, name: str) -> bool:
        return any(name == hidden and begin < self.at <= end for hidden, begin, end in self._hidden)

    def _change(self, use: int, kind: UseKind) -> None:
        self._answer.uses[use] = self._answer.uses[use]._replace(kind=kind)

    def _close(self, frame: Frame, *, keeps_sources: bool = False) -> None:
        """At the end of a query its stars are known, and so are the tables that they stand for."""
        if not frame.is_existence:
            for source in frame.sources:
                if frame.stars & (source.names | {""}):
                    self._change(source.use, UseKind.SQL_SELECT_STAR)
            if frame.target is not None and frame.returns and frame.stars & (frame.target.names | {""}):
                written = self._answer.uses[frame.target.use]
                self._answer.uses.append(written._replace(kind=UseKind.SQL_SELECT_STAR, access=Access.READ))
        frame.stars, frame.lists_tables, frame.in_columns = set(), False, False
        if not keeps_sources:
            frame.sources = []

    def _body(self, token: Token) -> None:
        """The body of a function or of DO is SQL inside a text."""
        inner = _Reader([each for each in tokens(token.value) if each.type is not Type.COMMENT], self._tables).read()
        number = len(self._answer.statements)
        self._answer.uses += [
            use._replace(offset=use.offset + token.inner, statement=number, part=use.statement + 1)
            for use in inner.uses
        ]
        self.at += 1


def _names_target(word: str, before: str) -> bool:
    return word in SCHEMA_TARGETS or (word == "by" and before == "owned")


def _distinct(uses: list[SqlUse]) -> list[SqlUse]:
    """One use per statement, table and kind: the first."""
    first: dict[object, SqlUse] = {}
    for use in sorted(uses, key=lambda use: use.offset):
        first.setdefault((use.statement, use.part, use.table, use.kind, use.access), use)
    return list(first.values())
