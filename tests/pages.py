"""An HTML page as a tree, read by the standard library alone: what stands in it, and what it would fetch."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser

_VOID = frozenset({"meta", "link", "br", "wbr", "input", "img", "hr"})


class Element:
    """One element: its attributes, its text and what is in it."""

    def __init__(self, name: str, attributes: dict[str, str]) -> None:
        self.name = name
        self.attributes = attributes
        self.children: list[Element | str] = []

    @property
    def text(self) -> str:
        return "".join(each if isinstance(each, str) else each.text for each in self.children)

    def all(self, name: str = "") -> Iterator[Element]:
        """Every element below, of a name or of any, in order."""
        for child in self.children:
            if isinstance(child, Element):
                if name in ("", child.name):
                    yield child
                yield from child.all(name)

    def one(self, name: str) -> Element:
        (found,) = self.all(name)
        return found


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("", {})
        self._open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self._open[-1].children.append(element)
        if tag not in _VOID:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open[-1].children.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open[-1].name == tag, f"</{tag}> closes <{self._open[-1].name}>"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        self._open[-1].children.append(data)

    def end(self) -> Element:
        assert len(self._open) == 1, f"<{self._open[-1].name}> is not closed"
        return self.root


def read_page(text: str) -> Element:
    """The page; raises where elements are not nested."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    return reader.end()
