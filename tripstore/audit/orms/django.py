"""`DjangoApps`: labels of apps, models by their labels, and the model of users. Settings are read, never imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from pathlib import PurePosixPath

from tripstore.audit.meaning.bindings import Assigned, ClassFacts
from tripstore.audit.meaning.orm import Orm
from tripstore.audit.meaning.values import Entity, Scope, Text
from tripstore.audit.names import LegacyTable
from tripstore.audit.orms.known import KnownModels
from tripstore.audit.orms.naming import django_name

#: Tables of Django's own models that are not named by app and class.
_OWN = {
    ("sessions", "session"): "django_session",
    ("contenttypes", "contenttype"): "django_content_type",
    ("sites", "site"): "django_site",
    ("admin", "logentry"): "django_admin_log",
    ("flatpages", "flatpage"): "django_flatpage",
    ("redirects", "redirect"): "django_redirect",
}


class DjangoApps:
    """The apps of a project, as far as folders and their apps.py tell."""

    def __init__(self, models: KnownModels) -> None:
        self._models = models
        self._labels: dict[str, tuple[str, ...]] = {}
        self._outside: dict[LegacyTable, Entity] = {}

    def forget(self) -> None:
        self.__dict__.pop("user_model", None)
        self.__dict__.pop("_moved", None)
        self._labels.clear()

    def is_migration(self, file: str) -> bool:
        """Whether a file is a migration: by its folder, or by the settings' MIGRATION_MODULES."""
        return "migrations" in file.split("/") or self._moved_label(file) is not None

    def _moved_label(self, file: str) -> str | None:
        folder = PurePosixPath(file).parent.parts
        return next((label for parts, label in self._moved if folder[-len(parts) :] == parts), None)

    @cached_property
    def _moved(self) -> list[tuple[tuple[str, ...], str]]:
        """The folders that MIGRATION_MODULES names, each with the label of its app."""
        found: list[tuple[tuple[str, ...], str]] = []
        for file, bound in self._models.modules.loaded():
            for binding in bound.names.get("MIGRATION_MODULES", ()):
                pairs = binding.value if isinstance(binding, Assigned) else None
                if isinstance(pairs, ast.Dict):
                    scope = self._models.scope(file)
                    said = [
                        [self._known(each, scope) for each in pair]
                        for pair in zip(pairs.keys, pairs.values, strict=True)
                    ]
                    found += [(tuple(dotted.split(".")), label) for label, dotted in said if label and dotted]
        return found

    def _known(self, node: ast.expr | None, scope: Scope) -> str | None:
        found = self._models.denoting.value(node, scope) if node is not None else None
        return found.text if isinstance(found, Text) else None

    def labels(self, file: str) -> tuple[str, ...]:
        """What the app of a file may be called: by its apps.py, else by the folder that has its models."""
        folder = str(PurePosixPath(file).parent)
        if folder not in self._labels:
            self._labels[folder] = tuple(self._labels_of(file))
        return self._labels[folder]

    def _labels_of(self, file: str) -> list[str]:
        path = PurePosixPath(file)
        moved = self._moved_label(file)
        if moved is not None:
            return [moved]
        for folder in path.parents:
            said = list(self._configured(str(folder / "apps.py").removeprefix("./")))
            if said:
                return said
            if path.relative_to(folder).parts[0] in ("models.py", "models", "migrations"):
                return [self._name(folder)]
        return [self._name(folder) for folder in path.parents]

    def _name(self, folder: PurePosixPath) -> str:
        return folder.name or self._models.modules.root.name

    def _configured(self, file: str) -> Iterator[str]:
        """The labels of the configurations in an apps.py."""
        if not self._models.modules.has(file):
            return
        for every in self._models.scope(file).bindings.names.values():
            for facts in every:
                if isinstance(facts, ClassFacts):
                    said = {key: self._text(facts, key, file) for key in ("label", "name")}
                    label = said["label"] or (said["name"] or "").rpartition(".")[2]
                    if label:
                        yield label

    def _text(self, facts: ClassFacts, key: str, file: str) -> str | None:
        return self._known(facts.constants.get(key), self._models.scope(file))

    def model(self, label: str | None, name: str, importer: str = "") -> Entity | None:
        """The model that `"app.Model"` means; without a label that of the same app, else any of the name."""
        candidates = self._models.classes(name)
        wanted = (label,) if label is not None else self.labels(importer)
        own = [(file, facts) for file, facts in candidates if set(wanted) & set(self.labels(file))]
        entities = [self._models.entity(facts, self._models.scope(file)) for file, facts in own or candidates]
        with_tables = [entity for entity in entities if entity.tables]
        if own or (label is None and entities):
            return (with_tables or entities)[0]
        return self.outside(label, name) if label is not None else None

    def outside(self, label: str, name: str) -> Entity | None:
        """A model of an app that is not in the code base, if its table is looked for."""
        table_name = _OWN.get((label, name.lower())) or django_name(label, name)
        table = self._models.tables.find(None, table_name)
        if table is None:
            return None
        if table not in self._outside:
            facts = ClassFacts(name, 0, (), None, None, None, None, False, {}, {})
            self._outside[table] = Entity(f"({label})", 0, name, (table,), facts, Orm.DJANGO)
        return self._outside[table]

    def imported(self, dotted: str) -> Entity | None:
        """`django.contrib.auth.models.User`, which the code base does not define."""
        parts = dotted.split(".")
        if len(parts) < 3 or "models" not in parts[-2]:
            return None
        return self.outside(parts[-3], parts[-1])

    @cached_property
    def user_model(self) -> Entity | None:
        """What AUTH_USER_MODEL says; Django's own if it says nothing."""
        found: list[Entity | None] = []
        for file, bound in self._models.modules.loaded():
            for binding in bound.names.get("AUTH_USER_MODEL", ()):
                if isinstance(binding, Assigned):
                    said = self._models.denoting.value(binding.value, self._models.scope(file))
                    if isinstance(said, Text) and "." in said.text:
                        label, _, name = said.text.rpartition(".")
                        found.append(self.model(label, name))
        known = [entity for entity in found if entity is not None]
        with_tables = [entity for entity in known if entity.tables]
        if known:
            return (with_tables or known)[0]
        return self.outside("auth", "User")
