"""A file with its edits: comments above what stays, imports of what is new. Files are written whole or not at all."""

from __future__ import annotations

import ast
import io
import os
import subprocess
import tempfile
import tokenize
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path

from schemaless_core.errors import InvalidRequest
from tripstore.audit.reading.parsing import parse
from tripstore.audit.rewrite.verdicts import Edit, RewrittenFile

MARK = "# tripstore rewrite: "


@dataclass(frozen=True, slots=True)
class Unwritten:
    """A file that was left as it is, and why."""

    name: str
    reason: str


def patched(
    source: str, edits: Iterable[Edit], comments: Mapping[int, Sequence[str]], imports: Sequence[tuple[str, str]]
) -> str:
    """The source with edits made, comments above lines (counted from 1), and `(module, name)` imported."""
    lines = source.split("\n")
    every = [*edits, *_commented(lines, comments)]
    text = source
    for edit in sorted(every, key=lambda each: (each.start, each.end), reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return _importing(text, imports) if imports else text


def _commented(lines: Sequence[str], comments: Mapping[int, Sequence[str]]) -> Iterable[Edit]:
    """Comments of a former run above the same lines are replaced; above others they go."""
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    for number, line in enumerate(lines):
        if line.lstrip().startswith(MARK):
            yield Edit(starts[number], starts[number + 1], "")
    for number, said in comments.items():
        line = lines[number - 1]
        indent = line[: len(line) - len(line.lstrip())]
        text = "".join(f"{indent}{MARK}{each}\n" for each in said)
        yield Edit(starts[number - 1], starts[number - 1], text)


def _importing(text: str, imports: Sequence[tuple[str, str]]) -> str:
    try:
        import libcst  # only this command needs it, and it is large
        from libcst.codemod import CodemodContext
        from libcst.codemod.visitors import AddImportsVisitor
    except ImportError:
        raise InvalidRequest(
            "Imports are added by libcst, which is not installed.", hint="pip install 'tripstore[audit]'"
        ) from None
    context = CodemodContext()
    for module, name in imports:
        AddImportsVisitor.add_needed_import(context, module, name)
    try:
        return AddImportsVisitor(context).transform_module(libcst.parse_module(text)).code
    except libcst.ParserSyntaxError:
        return text  # which is no sound rewrite: it lacks what it needs


def is_sound(file: RewrittenFile, *, only_comments: bool) -> bool:
    """Whether the new text parses and imports what it calls, or says the same where only comments were added."""
    try:
        after = parse(file.after)
    except (SyntaxError, ValueError):
        return False
    if only_comments:
        return ast.dump(after) == ast.dump(parse(file.before))
    return any(isinstance(each, ast.ImportFrom) and each.module == "tripstore" for each in after.body)


def diff(file: RewrittenFile) -> str:
    before, after = file.before.splitlines(keepends=True), file.after.splitlines(keepends=True)
    return "".join(unified_diff(before, after, f"a/{file.name}", f"b/{file.name}"))


def write(root: Path, files: Sequence[RewrittenFile], *, allow_dirty: bool) -> list[Unwritten]:
    """Write each file that is as it was read; answer those that are not."""
    folder = root if root.is_dir() else root.parent
    dirty = {} if allow_dirty else _dirty(folder, files)
    left: list[Unwritten] = []
    for file in files:
        path = folder / file.name
        reason = dirty.get(file.name) or _replace(path, file)
        if reason is not None:
            left.append(Unwritten(file.name, reason))
    return left


def _dirty(folder: Path, files: Sequence[RewrittenFile]) -> dict[str, str]:
    """Files with changes that are in no commit, and all of them where there is no repository."""
    command = [
        "git",
        "-C",
        str(folder),
        "status",
        "--porcelain",
        "-z",
        "--untracked-files=all",
        "--ignored=matching",
        "--",
        *(each.name for each in files),
    ]
    try:
        ran = subprocess.run(command, capture_output=True, timeout=60, check=False)
        top = subprocess.run(
            ["git", "-C", str(folder), "rev-parse", "--show-prefix"], capture_output=True, timeout=60, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return {each.name: "git cannot be asked whether it has changes" for each in files}
    if ran.returncode or top.returncode:
        return {each.name: "it is in no git repository" for each in files}
    prefix = top.stdout.decode().strip()
    changed = {
        part[3:].removeprefix(prefix) for part in ran.stdout.decode(errors="replace").split("\0") if len(part) > 3
    }
    return {each.name: "it has changes that are not committed" for each in files if each.name in changed}


def _replace(path: Path, file: RewrittenFile) -> str | None:
    """Replace a file at once, with its line ends, encoding and rights; say why not."""
    target = path.resolve()
    data = target.read_bytes()
    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    text = data.decode(encoding)
    ends = "\r\n" if "\r\n" in text else "\n"
    if text.replace("\r\n", "\n").replace("\r", "\n") != file.before:
        return "it has changed since it was read"
    if file.before.replace("\n", ends) != text:
        return "it mixes line ends"
    new = file.after.replace("\n", ends).encode(encoding)
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as staging:
        staging.write(new)
    os.chmod(staging.name, target.stat().st_mode & 0o7777)
    os.replace(staging.name, target)
    return None
