"""Drawings of the documentation as SVG: the part of Mermaid's language that its pages use, without a browser.

Two kinds: `sequenceDiagram` with participants, messages, answers and notes, and `flowchart TB` with boxes and arrows. A
line that is neither is an error, so that no page shows less than it says. Colours are those of the text around.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

FONT = 13
#: A letter's width on average, a line's height, the room around text.
LETTER, LINE, PAD = 6.9, 17, 9

_TITLE = re.compile(r"accTitle: (?P<title>.+)")
_PARTICIPANT = re.compile(r"participant (?P<key>\w+)(?: as (?P<text>.+))?")
_MESSAGE = re.compile(r"(?P<source>\w+)(?P<arrow>--?>>)(?P<target>\w+): (?P<text>.+)")
_NOTE = re.compile(r"Note over (?P<first>\w+)(?:,\s*(?P<last>\w+))?: (?P<text>.+)")
_ARROW = re.compile(
    r'(?P<source>\w+)(?:\["(?P<here>[^"]+)"\])?'
    r'(?: -->(?:\|(?P<label>[^|]+)\|)? (?P<target>\w+)(?:\["(?P<there>[^"]+)"\])?)?'
)


class NotDrawn(Exception):
    """A line that this file does not know."""


def drawn(source: str) -> str:
    """One drawing, as a piece of HTML without an empty line, which would end it in Markdown."""
    kind, *lines = [line.strip() for line in source.splitlines() if line.strip()]
    titles = [found["title"] for found in map(_TITLE.fullmatch, lines) if found]
    if len(titles) != 1:
        raise NotDrawn(f"A drawing has one accTitle, for readers who hear it: {source!r}")
    rest = [line for line in lines if not _TITLE.fullmatch(line)]
    if kind == "sequenceDiagram":
        parts, width, height = _sequence(rest)
    elif kind == "flowchart TB":
        parts, width, height = _flow(rest)
    else:
        raise NotDrawn(kind)
    title = escape(titles[0])
    return "\n".join(
        [
            '<figure class="drawing">',
            f'<svg viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{title}" font-size="{FONT}"'
            f' style="max-width: {width:.0f}px; width: 100%" fill="currentColor" stroke="currentColor">',
            f"<title>{title}</title>",
            *parts,
            "</svg>",
            f"<figcaption>{title}</figcaption>",
            "</figure>",
        ]
    )


@dataclass
class _Actor:
    """A participant and where its line stands."""

    text: list[str]
    x: float = 0.0

    @property
    def width(self) -> float:
        return _width(self.text) + 2 * PAD


def _sequence(lines: Sequence[str]) -> tuple[list[str], float, float]:
    actors, steps = _read(lines)
    order = list(actors)
    _spread(actors, order, steps)
    top = max(len(actor.text) for actor in actors.values()) * LINE + 2 * PAD
    y, parts = float(top + LINE), list[str]()
    for step in steps:
        drawing, y = _note(step, actors, y) if step["kind"] == "note" else _message(step, actors, y)
        parts += drawing
    width = max(_right_of(step, actors) for step in [*steps, {"first": order[-1]}]) + 2
    heads = [part for actor in actors.values() for part in _head(actor, top, y)]
    return [*heads, *parts], width, y + 4


def _read(lines: Sequence[str]) -> tuple[dict[str, _Actor], list[dict[str, str]]]:
    actors: dict[str, _Actor] = {}
    steps: list[dict[str, str]] = []
    for line in lines:
        if found := _PARTICIPANT.fullmatch(line):
            actors[found["key"]] = _Actor(textwrap.wrap(found["text"] or found["key"], 22))
        elif found := _MESSAGE.fullmatch(line):
            steps.append({"kind": "message", **found.groupdict()})
        elif found := _NOTE.fullmatch(line):
            steps.append({"kind": "note", **{key: value or found["first"] for key, value in found.groupdict().items()}})
        else:
            raise NotDrawn(line)
    named = {step[key] for step in steps for key in ("source", "target", "first", "last") if key in step}
    if named - actors.keys():
        raise NotDrawn(f"Not a participant: {sorted(named - actors.keys())}")
    return actors, steps


def _spread(actors: dict[str, _Actor], order: list[str], steps: Sequence[dict[str, str]]) -> None:
    """Put each as far right as what is written between it and those before it needs."""
    actors[order[0]].x = actors[order[0]].width / 2 + 1
    for n, key in enumerate(order[1:], start=1):
        before = actors[order[n - 1]]
        least = before.x + before.width / 2 + actors[key].width / 2 + 16
        for step in steps:
            ends = [step.get("source", step.get("first", "")), step.get("target", step.get("last", ""))]
            left, right = sorted(map(order.index, ends))
            if right == n and left < n:
                least = max(least, actors[order[left]].x + _width(_lines(step)) + 2 * PAD + 8)
            elif left == right == n - 1:
                least = max(least, before.x + _width(_lines(step)) + 50)
        actors[key].x = least


def _right_of(step: dict[str, str], actors: dict[str, _Actor]) -> float:
    """How far to the right a step reaches, or the head of an actor."""
    if "arrow" in step:
        ends = max(actors[step["source"]].x, actors[step["target"]].x)
        return ends + (_width(_lines(step)) + 45 if step["source"] == step["target"] else 0)
    if "text" not in step:
        return actors[step["first"]].x + actors[step["first"]].width / 2
    start, width = _extent(step, actors)
    return start + width


def _extent(step: dict[str, str], actors: dict[str, _Actor]) -> tuple[float, float]:
    """Where a note begins, and how wide it is."""
    left, right = sorted((actors[step["first"]].x, actors[step["last"]].x))
    width = max(right - left + 40, _width(_lines(step)) + 2 * PAD)
    return max(1.0, (left + right - width) / 2), width


def _lines(step: dict[str, str]) -> list[str]:
    return textwrap.wrap(step["text"], 44)


def _head(actor: _Actor, top: float, bottom: float) -> list[str]:
    line = f'<line x1="{actor.x:.0f}" y1="{top:.0f}" x2="{actor.x:.0f}" y2="{bottom:.0f}" stroke-opacity=".3"/>'
    return [line, *_box(actor.x - actor.width / 2, 1, actor.width, top - 1, actor.text)]


def _message(step: dict[str, str], actors: dict[str, _Actor], y: float) -> tuple[list[str], float]:
    text = _lines(step)
    y += len(text) * LINE
    left, right = actors[step["source"]].x, actors[step["target"]].x
    dashes = ' stroke-dasharray="4 3"' if step["arrow"] == "-->>" else ""
    if left == right:
        path = f"M {left:.0f} {y - 6:.0f} h 30 v 12 h -24"
        parts = [*_text(left + 38, y - (len(text) - 1) * LINE, text, "start"), _tip(left, y + 6, -1)]
        return [f'<path d="{path}" fill="none"{dashes}/>', *parts], y + LINE
    way = 1 if right > left else -1
    line = f'<line x1="{left:.0f}" y1="{y:.0f}" x2="{right - way * 7:.0f}" y2="{y:.0f}"{dashes}/>'
    middle = (left + right) / 2
    return [line, _tip(right, y, way), *_text(middle, y - 6 - (len(text) - 1) * LINE, text, "middle")], y + 10


def _note(step: dict[str, str], actors: dict[str, _Actor], y: float) -> tuple[list[str], float]:
    text = _lines(step)
    start, width = _extent(step, actors)
    height = len(text) * LINE + PAD
    return _box(start, y, width, height, text, tint=0.12), y + height + 4


def _flow(lines: Sequence[str]) -> tuple[list[str], float, float]:
    """Boxes in ranks: each below all that point to it."""
    flow = _Flow()
    for line in lines:
        found = _ARROW.fullmatch(line)
        if not found:
            raise NotDrawn(line)
        flow.add(found)
    return flow.drawn()


@dataclass
class _Flow:
    boxes: dict[str, list[str]] = field(default_factory=dict)
    arrows: list[tuple[str, str, str]] = field(default_factory=list)

    def add(self, found: re.Match[str]) -> None:
        for key, text in ((found["source"], found["here"]), (found["target"], found["there"])):
            if text:
                self.boxes[key] = [part for piece in text.split("<br/>") for part in textwrap.wrap(piece, 40)]
            elif key and key not in self.boxes:
                raise NotDrawn(f"{key} has no text yet")
        if found["target"]:
            self.arrows.append((found["source"], found["target"], found["label"] or ""))

    def drawn(self) -> tuple[list[str], float, float]:
        rows = self._rows()
        width = max(sum(map(self._width, row)) + 40 * (len(row) - 1) for row in rows) + 2
        places: dict[str, tuple[float, float, float]] = {}
        parts, y = list[str](), 1.0
        for row in rows:
            height = max(len(self.boxes[key]) for key in row) * LINE + 2 * PAD
            x = (width - sum(map(self._width, row)) - 40 * (len(row) - 1)) / 2
            for key in row:
                parts += _box(x, y, self._width(key), height, self.boxes[key])
                places[key] = (x + self._width(key) / 2, y, y + height)
                x += self._width(key) + 40
            y += height + 42
        return [*parts, *self._arrows(places)], width, y - 40

    def _rows(self) -> list[list[str]]:
        ranks = dict.fromkeys(self.boxes, 0)
        for _ in self.boxes:  # as often as the longest way at most
            for source, target, _label in self.arrows:
                ranks[target] = max(ranks[target], ranks[source] + 1)
        return [[key for key in self.boxes if ranks[key] == rank] for rank in sorted(set(ranks.values()))]

    def _width(self, key: str) -> float:
        return _width(self.boxes[key]) + 2 * PAD

    def _arrows(self, places: dict[str, tuple[float, float, float]]) -> list[str]:
        parts = []
        for source, target, label in self.arrows:
            (x1, _top, y1), (x2, y2, _bottom) = places[source], places[target]
            parts.append(f'<line x1="{x1:.0f}" y1="{y1:.0f}" x2="{x2:.0f}" y2="{y2 - 7:.0f}"/>')
            parts.append(f'<path d="M {x2:.0f} {y2:.0f} l -4 -8 h 8 z"/>')
            if label:
                parts += _text((x1 + x2) / 2 + 6, (y1 + y2) / 2 + 4, [label], "start")
        return parts


def _box(x: float, y: float, width: float, height: float, text: Sequence[str], tint: float = 0.05) -> list[str]:
    first = y + height / 2 - (len(text) - 1) * LINE / 2 + FONT / 3
    rect = (
        f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height:.0f}" rx="3" fill-opacity="{tint}"'
        ' stroke-opacity=".5"/>'
    )
    return [rect, *_text(x + width / 2, first, text, "middle")]


def _text(x: float, y: float, lines: Sequence[str], anchor: str) -> list[str]:
    return [
        f'<text x="{x:.0f}" y="{y + n * LINE:.0f}" text-anchor="{anchor}" stroke="none">{escape(line)}</text>'
        for n, line in enumerate(lines)
    ]


def _tip(x: float, y: float, way: int) -> str:
    return f'<path d="M {x:.0f} {y:.0f} l {-8 * way} -4 v 8 z"/>'


def _width(lines: Sequence[str]) -> float:
    return max(map(len, lines)) * LETTER
