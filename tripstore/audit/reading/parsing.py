"""`parse`: Python source as a tree, in the syntax of later Pythons as well as of the one that runs.

A file that does not parse is rewritten in older syntax, character for character at the same places, and parsed again.
What no rewriting covers still raises SyntaxError: such a file counts as not looked at.
"""

from __future__ import annotations

import ast

from tripstore.audit.reading.older_syntax import Bound, older


def parse(source: str) -> ast.Module:
    """Parse a file. Raise the SyntaxError of the source itself if it is no good Python of any version."""
    try:
        return ast.parse(source)
    except SyntaxError:
        rewritten = older(source)
        if rewritten is None or rewritten.source == source:
            raise
        try:
            tree = ast.parse(rewritten.source)
            _put_back(tree, rewritten.bounds)
        except SyntaxError:
            tree = None
        if tree is None:
            raise
        return tree


def _put_back(tree: ast.Module, bounds: list[Bound]) -> None:
    """Bounds of type parameters name classes. As decorators they are looked at, and change nothing."""
    if not bounds:
        return
    places = {(bound.line, bound.name): bound for bound in bounds}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound = places.get((node.lineno, node.name))
            for text in bound.texts if bound is not None else ():
                expression = ast.parse(text.strip(), mode="eval").body
                for part in ast.walk(expression):
                    if isinstance(part, ast.expr):
                        part.lineno = part.end_lineno = node.lineno
                        part.col_offset = part.end_col_offset = node.col_offset
                node.decorator_list.append(expression)
