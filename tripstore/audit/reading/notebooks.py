"""Notebooks as Python source: their code cells below each other, and what their magics run as SQL as a text of it.

Lines are counted over the cells of code, as if the notebook were one file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

#: Magics whose cell is Python all the same.
_PYTHON = frozenset({"time", "timeit", "capture", "prun", "python", "python3"})
_LINE = re.compile(r"^(\s*)(?:[\w, ]+(?:=|<<)\s*)?%sql\s+(.+)$")
_COMMAND = re.compile(r"^\s*(?:[\w, ]+=\s*)?[%!?]|\?\s*$")


class _Cell(msgspec.Struct):
    cell_type: str = ""
    source: str | list[str] = ""
    input: str | list[str] = ""  #: The name before version 4.


class _Sheet(msgspec.Struct):
    cells: list[_Cell] = []


class _Kernel(msgspec.Struct):
    language: str = ""


class _Metadata(msgspec.Struct):
    kernelspec: _Kernel = msgspec.field(default_factory=_Kernel)


class _Notebook(msgspec.Struct):
    cells: list[_Cell] = []
    worksheets: list[_Sheet] = []
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


def notebook_source(data: bytes) -> str:
    """The Python of a notebook. Raise ValueError if it is none, or one of another language."""
    try:
        notebook = msgspec.json.decode(data, type=_Notebook)
    except msgspec.MsgspecError as error:
        raise ValueError(f"it is no notebook: {error}") from error
    language = notebook.metadata.kernelspec.language.lower()
    if language and "python" not in language:
        raise ValueError(f"it is a notebook in {language}")
    cells = [*notebook.cells, *(cell for sheet in notebook.worksheets for cell in sheet.cells)]
    lines = [line for cell in cells if cell.cell_type == "code" for line in _lines(cell)]
    return "\n".join(lines) + "\n"


def _lines(cell: _Cell) -> Iterator[str]:
    source = cell.source or cell.input
    lines = (source if isinstance(source, str) else "".join(source)).split("\n")
    first = lines[0].strip()
    magic = first.removeprefix("%%").split(" ")[0] if first.startswith("%%") else ""
    if magic.startswith("sql"):
        statement = "\n".join(line.replace('"""', "   ") for line in lines[1:])
        yield from f'execute("""\n{statement}""")'.split("\n")  # as many lines as the cell has
    elif not magic or magic in _PYTHON:
        yield from map(_line, lines)
    else:
        yield from ("" for _ in lines)


def _line(line: str) -> str:
    """A line of a cell; what the shell would do is no Python."""
    found = _LINE.match(line)
    if found is not None:
        return f"{found[1]}execute({found[2]!r})"
    return "pass" if _COMMAND.search(line) and line[:1] not in " \t" else _inner(line)


def _inner(line: str) -> str:
    """`    !ls` in a loop."""
    stripped = line.lstrip()
    return line[: len(line) - len(stripped)] + "pass" if stripped[:1] in ("!", "%") else line
