"""What the names of a module, class or function stand for, as far as its own text says. Nothing is resolved here."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

Method = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Imported:
    """`from …module import name`; without a name the module itself. Level counts the dots."""

    module: str
    level: int
    name: str | None


@dataclass(frozen=True, slots=True)
class Assigned:
    """The name is the value of an expression, an element of it (a loop), or a value of this annotation."""

    value: ast.expr
    is_element: bool = False
    is_annotation: bool = False


@dataclass(frozen=True, slots=True)
class Returning:
    """A function."""

    function: Method


@dataclass(frozen=True, slots=True)
class Opaque:
    """The name is something that this file cannot tell; it hides what was outside."""


@dataclass(frozen=True, slots=True)
class Relationship:
    """An attribute of a class that leads to another: `relationship(target, backref=…)`."""

    target: ast.expr | None
    annotation: ast.expr | None
    backref: str | None


@dataclass(frozen=True, slots=True)
class ClassMeta:
    """`class Meta:` of Django and Peewee: what its own text assigns, and what it derives from."""

    bases: tuple[ast.expr, ...]
    options: dict[str, ast.expr]


@dataclass(frozen=True, slots=True, eq=False)
class ClassFacts:
    """A class as its own text describes it."""

    name: str
    line: int
    bases: tuple[ast.expr, ...]
    table_name: ast.expr | None  #: `__tablename__ = …`
    table: ast.expr | None  #: `__table__ = …`
    schema: ast.expr | None  #: of `__table_args__`
    computed: ast.expr | None  #: what `__tablename__`, a function, answers, if it is no constant
    is_sqlmodel: bool  #: `class Trip(SQLModel, table=True)` is called trip unless it says otherwise
    relations: dict[str, Relationship]
    constants: dict[str, ast.expr]  #: texts, such as `TRIPS = "trips"`
    calls: dict[str, ast.Call] = field(default_factory=dict)  #: attributes that a call makes: fields and managers
    meta: ClassMeta | None = None
    is_abstract: bool = False  #: `__abstract__ = True`
    is_root: bool = False  #: `@as_declarative()`
    methods: tuple[Method, ...] = ()
    annotations: dict[str, ast.expr] = field(default_factory=dict)  #: of attributes without a value: `trip: Trip`

    @property
    def columns(self) -> list[str]:
        """The attributes that look like columns of a table, whichever ORM it is."""
        return [name for name, call in self.calls.items() if _COLUMN.search(last_name(call.func))]

    @property
    def has_primary_key(self) -> bool:
        named = (keyword(call, "primary_key") for call in self.calls.values())
        return any(value is not None and _is_true(value) for value in named)

    def is_read(self, name: str) -> bool:
        """Whether a method is asked as an attribute: `@property`."""
        named = [part for each in self.methods if each.name == name for part in each.decorator_list]
        return any(last_name(part).endswith("property") for part in named)

    def is_property(self, name: str) -> bool:
        """Whether the class makes the attribute itself: `@property`, `metadata = property(…)`."""
        call = self.calls.get(name)
        if call is not None:
            return last_name(call.func) == "property"
        return any(each.name == name and each.decorator_list for each in self.methods)


_COLUMN = re.compile(r"^(?:Column|mapped_column)$|Field$|ForeignKey$")


Binding = Imported | Assigned | Returning | Opaque | ClassFacts


@dataclass(slots=True)
class Bindings:
    """All names of one scope; a name may be bound more than once."""

    names: dict[str, list[Binding]] = field(default_factory=dict)
    stars: list[Imported] = field(default_factory=list)
    outer: set[str] = field(default_factory=set)  #: `global` and `nonlocal`

    def add(self, name: str, binding: Binding) -> None:
        self.names.setdefault(name, []).append(binding)

    def is_type_variable(self, name: str) -> bool:
        """Whether the name is `TypeVar(…)`."""
        values = (each.value for each in self.names.get(name, ()) if isinstance(each, Assigned))
        return any(isinstance(value, ast.Call) and last_name(value.func) == "TypeVar" for value in values)


def bindings(body: Iterable[ast.stmt]) -> Bindings:
    """The names that statements bind, those inside of if, for, with, try and match too."""
    found = Bindings()
    waiting: list[ast.AST] = list(body)
    while waiting:
        statement = waiting.pop()
        _bind(statement, found)
        if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            waiting.extend(_inner(statement))
    return found


def bind_walrus(function: ast.AST, into: Bindings) -> None:
    """Bind the names of `(name := value)`, wherever in a function; those of functions inside come along."""
    for node in ast.walk(function):
        if isinstance(node, ast.NamedExpr):
            into.add(node.target.id, Assigned(node.value))


def _inner(statement: ast.AST) -> Iterable[ast.AST]:
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        yield from getattr(statement, name, ())


def parameters(arguments: ast.arguments, into: Bindings) -> None:
    """Bind the parameters of a function; an annotation may say what they are."""
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    for each in [*every, *filter(None, (arguments.vararg, arguments.kwarg))]:
        into.add(each.arg, Assigned(each.annotation, is_annotation=True) if each.annotation else Opaque())


def _bind(statement: ast.AST, into: Bindings) -> None:
    match statement:
        case ast.Import(names=names):
            for alias in names:
                if alias.asname:
                    into.add(alias.asname, Imported(alias.name, 0, None))
                else:
                    into.add(alias.name.partition(".")[0], Imported(alias.name.partition(".")[0], 0, None))
        case ast.ImportFrom(module=module, names=names, level=level):
            for alias in names:
                if alias.name == "*":
                    into.stars.append(Imported(module or "", level, None))
                else:
                    into.add(alias.asname or alias.name, Imported(module or "", level, alias.name))
        case ast.ClassDef(name=name):
            into.add(name, class_facts(statement))
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            into.add(name, Returning(statement))
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                bind_target(target, Assigned(value), into)
        case ast.AnnAssign(target=target, value=maybe, annotation=annotation):
            bind_target(target, Assigned(maybe or annotation, is_annotation=maybe is None), into)
        case ast.For(target=target, iter=value) | ast.AsyncFor(target=target, iter=value):
            bind_target(target, Assigned(value, is_element=True), into)
        case ast.With(items=items) | ast.AsyncWith(items=items):
            for item in items:
                if item.optional_vars is not None:
                    bind_target(item.optional_vars, Opaque(), into)
        case ast.ExceptHandler(name=str(name)):
            into.add(name, Opaque())
        case ast.Global(names=outer) | ast.Nonlocal(names=outer):
            into.outer.update(outer)
        case _:
            pass


def bind_target(target: ast.expr, binding: Binding, into: Bindings) -> None:
    """Bind the names of `a`, `a, *b` or `(a, (b, c))`. Attributes and elements bind no name."""
    if isinstance(target, ast.Name):
        into.add(target.id, binding)
    elif isinstance(target, ast.Starred):
        bind_target(target.value, binding, into)
    elif isinstance(target, ast.Tuple | ast.List):
        for position, part in enumerate(target.elts):
            bind_target(part, _part(binding, position, len(target.elts)), into)


def _part(binding: Binding, position: int, length: int) -> Binding:
    if isinstance(binding, Assigned) and isinstance(binding.value, ast.Tuple) and len(binding.value.elts) == length:
        return Assigned(binding.value.elts[position])
    return binding


def class_facts(node: ast.ClassDef) -> ClassFacts:
    """Read a class as SQLAlchemy's declarative mapping would."""
    table_name = table = schema = computed = meta = None
    is_abstract = False
    relations: dict[str, Relationship] = {}
    constants: dict[str, ast.expr] = {}
    calls: dict[str, ast.Call] = {}
    annotations: dict[str, ast.expr] = {}
    for statement in _statements(node.body):
        name, value, annotation = _assignment(statement)
        if name is not None and isinstance(value, ast.Call):
            calls[name] = value
        if name is not None and value is None and annotation is not None:
            annotations[name] = annotation
        if name == "__tablename__":
            table_name = value
        elif name == "__table__":
            table = value
        elif name == "__abstract__":
            is_abstract = value is not None and _is_true(value)
        elif name == "__table_args__" and value is not None:
            schema = _schema(value)
        elif name is not None and isinstance(value, ast.Call) and last_name(value.func) in RELATIONSHIPS:
            relations[name] = _relation(value, annotation)
        elif name is not None and isinstance(value, ast.Constant) and isinstance(value.value, str):
            constants[name] = value
        elif isinstance(statement, ast.FunctionDef) and statement.name == "__tablename__":
            table_name = _constant_answer(statement)
            computed = _answer(statement) if table_name is None else None
        elif isinstance(statement, ast.ClassDef) and statement.name == "Meta":
            meta = _meta(statement)
    return ClassFacts(
        name=node.name,
        line=node.lineno,
        bases=tuple(node.bases),
        table_name=table_name,
        table=table,
        schema=schema,
        computed=computed,
        is_sqlmodel=any(word.arg == "table" and _is_true(word.value) for word in node.keywords),
        relations=relations,
        constants=constants,
        calls=calls,
        methods=tuple(each for each in node.body if isinstance(each, Method)),
        annotations=annotations,
        meta=meta,
        is_abstract=is_abstract,
        is_root=any("as_declarative" in ast.unparse(each) for each in node.decorator_list),
    )


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a class, those inside of if and try too."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If | ast.Try):
            yield from _statements(each for each in _inner(statement) if isinstance(each, ast.stmt))


def _meta(node: ast.ClassDef) -> ClassMeta:
    options = {name: value for name, value, _annotation in map(_assignment, node.body) if name and value is not None}
    for each in node.body:
        if isinstance(each, ast.FunctionDef):
            options[each.name] = ast.Constant(None)
    return ClassMeta(tuple(node.bases), options)


def _answer(function: ast.FunctionDef) -> ast.expr:
    last = function.body[-1]
    return last.value if isinstance(last, ast.Return) and last.value is not None else ast.Constant(None)


RELATIONSHIPS = frozenset({"relationship", "relation", "dynamic_loader", "Relationship"})


def last_name(node: ast.expr) -> str:
    """`c` of `a.b.c`; nothing of what is no such chain."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((word.value for word in call.keywords if word.arg == name), None)


def _assignment(statement: ast.stmt) -> tuple[str | None, ast.expr | None, ast.expr | None]:
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
        return statement.targets[0].id, statement.value, None
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        return statement.target.id, statement.value, statement.annotation
    return None, None, None


def _schema(arguments: ast.expr) -> ast.expr | None:
    """The schema of `{"schema": …}`, alone or at the end of a tuple."""
    parts: Sequence[ast.expr] = arguments.elts if isinstance(arguments, ast.Tuple) else [arguments]
    for part in parts:
        if isinstance(part, ast.Dict):
            for key, value in zip(part.keys, part.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == "schema":
                    return value
    return None


def _relation(call: ast.Call, annotation: ast.expr | None) -> Relationship:
    target = call.args[0] if call.args else keyword(call, "argument")
    back = keyword(call, "backref")
    if isinstance(back, ast.Call) and back.args:  # backref("trips", lazy="dynamic")
        back = back.args[0]
    named = back.value if isinstance(back, ast.Constant) and isinstance(back.value, str) else None
    return Relationship(target, annotation, named)


def _constant_answer(function: ast.FunctionDef) -> ast.expr | None:
    """What `@declared_attr def __tablename__(cls): return "trips"` returns, if it is a constant."""
    last = function.body[-1]
    is_constant = isinstance(last, ast.Return) and isinstance(last.value, ast.Constant | ast.Name)
    return last.value if is_constant and isinstance(last, ast.Return) else None


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True
