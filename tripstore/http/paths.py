"""`Paths`: which route of the table a path names, and the texts of its parameters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus

from tripstore.http.errors import MethodRefused, RequestRefused
from tripstore.http.route import HttpRoute

_PARAMETER = re.compile(r"\\{(\w+)\\}")


class Paths:
    """Looks at paths as they are sent: an escaped slash is a part of a name."""

    def __init__(self, routes: Iterable[HttpRoute]) -> None:
        self._methods: dict[str, dict[str, HttpRoute]] = {}
        for route in routes:
            self._methods.setdefault(route.path, {})[route.method] = route
        self._patterns = [(_pattern(path), methods) for path, methods in self._methods.items()]

    def find(self, method: str, path: str) -> tuple[HttpRoute, Mapping[str, str]]:
        """Return the route and its parameters as they were sent, or refuse."""
        for pattern, methods in self._patterns:
            if found := pattern.fullmatch(path):
                return _route(methods, method), found.groupdict()
        hint = "/openapi.json says what can be called."
        raise RequestRefused(HTTPStatus.NOT_FOUND, "There is no such path.", hint=hint)


def _route(methods: Mapping[str, HttpRoute], method: str) -> HttpRoute:
    """HEAD is GET without the content, which the server leaves out."""
    route = methods.get("GET" if method == "HEAD" else method)
    if route is None:
        raise MethodRefused(", ".join(sorted(methods)))
    return route


def _pattern(path: str) -> re.Pattern[str]:
    """A column's name may have a slash in it, also when a proxy took its escape off."""
    return re.compile(_PARAMETER.sub(_group, re.escape(path)), re.DOTALL)


def _group(found: re.Match[str]) -> str:
    return f"(?P<{found[1]}>{'.*' if found[1] == 'column_name' else '[^/]+'})"
