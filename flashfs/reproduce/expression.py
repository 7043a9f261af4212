"""Computes a figure's value from a result: ``nand.erase / base.nand.erase``, with the columns in docs/replay.md.

A small language, not Python: numbers, names of columns, those of the baseline after ``base.``, + - * / and parentheses,
and the functions below. If a result lacks a column, the value is None.
"""

from __future__ import annotations

import ast
import json
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from flashfs.errors import UsageError

Row = Mapping[str, Any]

BASE = "base."
COUNTED = "nand.by_cause."  #: columns that are missing, and mean 0, if there was nothing to count


class Missing(Exception):
    """A column is missing, or a histogram is empty."""


def _share(values: Sequence[float], first: float, last: float) -> float:
    total = math.fsum(values)
    if not total:
        raise Missing
    return math.fsum(values[int(first) : int(last)]) / total


def _mean_index(values: Sequence[float]) -> float:
    total = math.fsum(values)
    if not total:
        raise Missing
    return math.fsum(at * n for at, n in enumerate(values)) / total


def _quantile_index(values: Sequence[float], share: float) -> float:
    total, seen = math.fsum(values), 0.0
    for at, n in enumerate(values):
        seen += n
        if n and seen >= share * total:
            return at
    raise Missing


#: for a list column, a histogram by index: the share from one index to before another, the mean index, a quantile; for
#: a list of numbers its sum and mean; for numbers, or a list of them, the least and the most; a logarithm to a base
FUNCTIONS: dict[str, Callable[..., float]] = {
    "share": _share,
    "mean_index": _mean_index,
    "quantile_index": _quantile_index,
    "total": math.fsum,
    "mean": fmean,
    "min": min,
    "max": max,
    "log": math.log,
}
OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}  # fmt: skip


class Expression:
    """``Expression(text)(row, base)`` is a number, or None. UsageError if the text is invalid."""

    def __init__(self, text: str) -> None:
        self.text = text
        try:
            self._tree = ast.parse(text, mode="eval").body
        except (SyntaxError, ValueError):
            known = ", ".join(FUNCTIONS)
            raise UsageError(f"value = {text!r}: use columns, numbers, + - * / and {known}") from None
        self._check(self._tree)

    @property
    def relative(self) -> bool:
        """Whether it uses the baseline."""
        return any(_column(node).startswith(BASE) for node in ast.walk(self._tree) if isinstance(node, ast.Attribute))

    def _check(self, node: ast.expr) -> None:
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            self._check(node.left)
            self._check(node.right)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            self._check(node.operand)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS:
            for one in node.args:
                self._check(one)
        elif not (isinstance(node, ast.Constant) and type(node.value) in (int, float)) and not _column(node):
            raise UsageError(f"value = {self.text!r}: {ast.unparse(node)!r}: a column, a number or one of "
                             f"{', '.join(FUNCTIONS)}(...)")  # fmt: skip

    def __call__(self, row: Row, base: Row | None) -> float | None:
        try:
            found = self._of(self._tree, row, base)
        except (Missing, ZeroDivisionError):
            return None
        except (TypeError, ValueError, IndexError) as error:
            raise UsageError(f"value = {self.text!r}: {error}: lists are for functions, numbers for the rest") from None
        return float(found)

    def _of(self, node: ast.expr, row: Row, base: Row | None) -> Any:
        if isinstance(node, ast.BinOp):
            return OPERATORS[type(node.op)](self._of(node.left, row, base), self._of(node.right, row, base))
        if isinstance(node, ast.UnaryOp):
            return -self._of(node.operand, row, base)
        if isinstance(node, ast.Call):
            assert isinstance(node.func, ast.Name)
            return FUNCTIONS[node.func.id](*(self._of(one, row, base) for one in node.args))
        if isinstance(node, ast.Constant):
            return node.value
        name = _column(node)
        of = row
        if name.startswith(BASE):
            if base is None:
                raise Missing
            name, of = name.removeprefix(BASE), base
        value = of.get(name)
        if value is None and name.startswith(COUNTED):
            return 0
        if value is None:
            raise Missing
        return json.loads(value) if isinstance(value, str) else value


def _column(node: ast.expr | ast.AST) -> str:
    """The dotted name of a node; empty if it is not a name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (before := _column(node.value)):
        return f"{before}.{node.attr}"
    return ""
