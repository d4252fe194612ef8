"""A call as the source of its file has it, and with one more argument."""

from __future__ import annotations

import ast
import functools
import linecache
from collections.abc import Iterator
from itertools import islice
from types import FrameType
from typing import Any


@functools.cache
def _tree(file: str) -> ast.Module | None:
    """The syntax of a file; None if it cannot be read."""
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return None


def _nodes_at(file: str, line: int) -> Iterator[ast.AST]:
    tree = _tree(file)
    for node in () if tree is None else ast.walk(tree):
        first = getattr(node, "lineno", None)
        if first is not None and first <= line <= node.end_lineno:  # type: ignore[attr-defined]
            yield node


def call_at(file: str, line: int, name: str) -> ast.Call | None:
    """The smallest call of `name` or `anything.name` that has this line."""
    found = [
        node
        for node in _nodes_at(file, line)
        if isinstance(node, ast.Call) and name_of(node.func) == name
    ]
    return min(found, key=_height, default=None)


def call_in(frame: FrameType) -> ast.Call | None:
    """The call that this frame makes now, by its columns: from Python 3.11 on."""
    code = frame.f_code
    if not hasattr(code, "co_positions"):
        return None
    span = next(islice(code.co_positions(), frame.f_lasti // 2, None))
    for node in _nodes_at(code.co_filename, frame.f_lineno):
        if isinstance(node, ast.Call) and span == (
            node.lineno, node.end_lineno, node.col_offset, node.end_col_offset
        ):  # fmt: skip
            return node
    return None


def value_in(frame: FrameType, node: ast.expr) -> Any:
    """The value of a name, or of an attribute; None if it is something else."""
    if isinstance(node, ast.Attribute):
        return getattr(value_in(frame, node.value), node.attr, None)
    if isinstance(node, ast.Name):
        return frame.f_locals.get(node.id, frame.f_globals.get(node.id))
    return None


def _height(node: ast.Call) -> int:
    return (node.end_lineno or 0) - node.lineno


def name_of(function: ast.expr) -> str:
    """The last part of a dotted name."""
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def target_of(file: str, line: int, name: str) -> str:
    """What the result of a call is assigned to, as text; "" if to nothing."""
    call = call_at(file, line, name)
    for node in _nodes_at(file, line):
        if isinstance(node, ast.Assign) and node.value is call:
            return ast.unparse(node.targets[0])
        if isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is call:
            return ast.unparse(node.target)
    return ""


def corrected(call: ast.Call, keyword: str = "", value: str = "") -> str:
    """The call on one line, with one more keyword argument if there is one."""
    more = [ast.keyword(keyword, ast.Name(value))] if keyword else []
    return ast.unparse(ast.Call(call.func, call.args, [*call.keywords, *more]))
