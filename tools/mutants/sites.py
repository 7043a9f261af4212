"""Where a compiled module can be changed, and how: Cython's own parser finds the places.

A mutant is one small change inside the body of a function. These are made:

- `condition`: the condition of an if, while or conditional expression is negated
- `comparison`: < becomes <=, == becomes !=, and so on
- `logic`: and becomes or, or becomes and
- `arithmetic`: + becomes -, << becomes >>, & becomes |, also in augmented assignments
- `constant`: a number, or a constant of an enum of the module, becomes one more; True becomes False
- `drop`: a call, an assignment, a return, break or continue is left out

Not changed: declarations without a value, docstrings, raise statements and their text, calls that release memory, the
sizes of allocations and the handling of their failure, literal subscripts, the step of a range, a local variable's
first assignment (without it the value is undefined), and the last return of a function.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from mutants.text import Place, Text

COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==",
               "is": "is not", "is_not": "is", "in": "not in", "not_in": "in"}  # fmt: skip
ARITHMETIC = {"+": "-", "-": "+", "<<": ">>", ">>": "<<", "&": "|", "|": "&"}
LOGIC = {"and": "or", "or": "and"}
#: calls that only allocate or free memory
MEMORY = {"free", "malloc", "calloc", "realloc", "mmap", "munmap", "madvise", "sizeof", "want_huge_pages"}
NEVER = {"__dealloc__", "release"}  #: functions that only free memory
ALONE = ("RaiseStatNode", "ReraiseStatNode", "JoinedStrNode", "CArgDeclNode", "DecoratorNode", "AnnotationNode")
TRUTHS = ("PrimaryCmpNode", "BoolBinopNode")
#: nodes that cannot be copied, because they refer to each other
KNIT = ("ComprehensionNode", "GeneratorExpressionNode", "LambdaNode", "InlinedGeneratorExpressionNode", "DefNode")
DROPPED = ("ExprStatNode", "SingleAssignmentNode", "InPlaceAssignmentNode", "CascadedAssignmentNode", "ReturnStatNode",
           "BreakStatNode", "ContinueStatNode", "DelStatNode")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Site:
    """One mutant: where it is and what it changes. ``text`` is the statement it is in; ``nth`` separates mutants
    that are otherwise alike."""

    module: str
    function: str
    kind: str
    line: int
    column: int
    before: str
    after: str
    text: str
    nth: int = 1

    @property
    def change(self) -> str:
        """The change in words. With the function and the text it identifies the mutant, independent of line numbers."""
        words = "left out" if self.kind == "drop" else f"{self.before} -> {self.after}"
        return words if self.nth == 1 else f"{words} (#{self.nth})"

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.module, self.function, self.text, self.change

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Slot:
    """A place for a node in the tree."""

    owner: Any
    attribute: str
    index: int | None = None

    def get(self) -> Any:
        value = getattr(self.owner, self.attribute)
        return value if self.index is None else value[self.index]

    def set(self, node: Any) -> None:
        if self.index is None:
            setattr(self.owner, self.attribute, node)
        else:
            getattr(self.owner, self.attribute)[self.index] = node


@dataclass(frozen=True, slots=True)
class Change:
    """A site in a parsed tree: its node, the node's slot, and whether only its truth matters."""

    site: Site
    slot: Slot
    node: Any
    is_truth: bool = False


def kind_of(node: Any) -> str:
    return type(node).__name__


def slots_of(node: Any) -> Iterator[Slot]:
    for name in node.child_attrs or ():
        child = getattr(node, name)
        if isinstance(child, list):
            yield from (Slot(node, name, i) for i, one in enumerate(child) if hasattr(one, "child_attrs"))
        elif hasattr(child, "child_attrs"):
            yield Slot(node, name)


def every(node: Any) -> Iterator[Any]:
    """The node and all below it."""
    yield node
    for slot in slots_of(node):
        yield from every(slot.get())


def called(node: Any) -> str:
    """The name of the function that a call calls; '' if it is no call."""
    function = getattr(node, "function", None) if kind_of(node) in ("SimpleCallNode", "GeneralCallNode") else None
    return str(getattr(function, "name", "") or getattr(function, "attribute", "") or "")


def uncast(node: Any) -> Any:
    return uncast(node.operand) if kind_of(node) == "TypecastNode" else node


def declared(declarator: Any) -> str:
    while not hasattr(declarator, "name"):
        declarator = declarator.base
    return str(declarator.name)


def arguments(declarator: Any) -> Any:
    while not hasattr(declarator, "args"):
        declarator = declarator.base
    return declarator.args


class Finder:
    """Walks a tree in the order of the text and notes each change that could be made."""

    def __init__(self, module: str, source: str, tree: Any) -> None:
        self.module = module
        self.text = Text(source)
        self.changes: list[Change] = []
        self.constants = {
            str(item.name) for node in every(tree) if kind_of(node) == "CEnumDefNode" for item in node.items
        }
        self.function = ""
        self.assigned: set[str] = set()
        self.conditions: list[Any] = []  # and their operands
        self.last: Any = None
        self.walk_outside(tree, "")
        self.number_alike()

    def number_alike(self) -> None:
        seen: Counter[tuple[str, str, str, str]] = Counter()
        for i, change in enumerate(self.changes):
            seen[change.site.key] += 1
            nth = seen[change.site.key]
            if nth > 1:
                self.changes[i] = replace(change, site=replace(change.site, nth=nth))

    def walk_outside(self, node: Any, prefix: str) -> None:
        """Find the functions; nothing outside them is changed."""
        if kind_of(node) in ("CFuncDefNode", "DefNode"):
            name = str(node.name) if kind_of(node) == "DefNode" else declared(node.declarator)
            if name not in NEVER:
                self.enter(node, f"{prefix}{name}")
            return
        if kind_of(node) in ("CClassDefNode", "PyClassDefNode"):
            prefix = f"{getattr(node, 'class_name', None) or node.name}."
        for slot in slots_of(node):
            self.walk_outside(slot.get(), prefix)

    def enter(self, node: Any, name: str) -> None:
        args = node.args if kind_of(node) == "DefNode" else arguments(node.declarator)
        self.function, self.assigned = name, {declared(arg.declarator) for arg in args}
        body = node.body
        stats = getattr(body, "stats", None) or [body]
        self.last = stats[-1]
        self.visit(Slot(node, "body"))

    # --- one node

    def visit(self, slot: Slot) -> None:
        node = slot.get()
        kind = kind_of(node)
        if kind in ALONE:
            return
        if called(node) in MEMORY or kind in ("SizeofTypeNode", "SizeofVarNode"):
            return
        if kind == "CVarDefNode":
            self.declaration(node)
            return
        note: Callable[[Slot, Any], None] | None = getattr(self, f"see_{kind}", None)
        if kind in DROPPED:
            self.see_statement(slot, node)
        if note is not None:
            note(slot, node)
        elif hasattr(node, "operand2"):
            self.see_arithmetic(slot, node)
        skipped = self.literal_parts(node)
        for inner in slots_of(node):
            if (inner.attribute, inner.index) not in skipped:
                self.visit(inner)

    def declaration(self, node: Any) -> None:
        for declarator in node.declarators:
            if getattr(declarator, "default", None) is not None:
                self.assigned.add(declared(declarator))
                self.visit(Slot(declarator, "default"))

    def literal_parts(self, node: Any) -> set[tuple[str, int | None]]:
        """The children that are not changed."""
        if kind_of(node) == "IndexNode" and kind_of(node.index) == "IntNode":
            return {("index", None)}
        if called(node) == "range" and len(node.args) == 3:
            return {("args", 2)}
        return {("function", None)} if called(node) else set()

    def add(self, slot: Slot, node: Any, kind: str, span: tuple[Place, Place], after: str) -> None:
        start, end = span
        before = self.text.between(start, end)
        line = self.text.whole(self.text.at(start))
        site = Site(self.module, self.function, kind, *start, before, after, line)
        truth = kind_of(node) in TRUTHS and (says_whether(node) or any(node is one for one in self.conditions))
        self.changes.append(Change(site, slot, node, truth))

    def word_at(self, place: Place, text: str = "") -> tuple[Place, Place] | None:
        """The span of the token at ``place``, or of the first one from there on that is ``text``."""
        for word in self.text.at(place).words:
            if word.start >= place and text in ("", word.text):
                return word.start, word.end
        return None

    # --- what is noted

    def see_statement(self, slot: Slot, node: Any) -> None:
        kind = kind_of(node)
        if kind == "ExprStatNode" and (called(node.expr) in MEMORY or "Call" not in kind_of(node.expr)):
            return
        if (kind == "ReturnStatNode" and node is self.last) or called(uncast(getattr(node, "rhs", None))) in MEMORY:
            return
        if kind == "SingleAssignmentNode" and kind_of(node.lhs) == "NameNode":
            first = str(node.lhs.name) not in self.assigned
            self.assigned.add(str(node.lhs.name))
            if first:
                return
        if kind == "CascadedAssignmentNode":
            self.assigned |= {str(lhs.name) for lhs in node.lhs_list if kind_of(lhs) == "NameNode"}
        statement = self.text.at(node.pos[1:])
        self.add(slot, node, "drop", (statement.start, statement.end), "")

    def see_InPlaceAssignmentNode(self, slot: Slot, node: Any) -> None:
        span = self.word_at(self.text.at(node.pos[1:]).start, f"{node.operator}=")
        if span is not None and node.operator in ARITHMETIC and copyable(node):
            self.add(slot, node, "arithmetic", span, f"{ARITHMETIC[node.operator]}=")

    def see_arithmetic(self, slot: Slot, node: Any) -> None:
        span = self.word_at(node.pos[1:], node.operator)
        if node.operator in ARITHMETIC and span is not None and copyable(node):
            self.add(slot, node, "arithmetic", span, ARITHMETIC[node.operator])

    def see_BoolBinopNode(self, slot: Slot, node: Any) -> None:
        span = self.word_at(node.pos[1:], node.operator)
        if span is not None and copyable(node) and not self.only_of_memory(node):
            self.add(slot, node, "logic", span, LOGIC[node.operator])

    def see_PrimaryCmpNode(self, slot: Slot, node: Any) -> None:
        operator = str(node.operator)
        span = self.word_at(node.pos[1:])
        if node.cascade is not None or operator not in COMPARISONS or span is None or not copyable(node):
            return
        if operator in ("is_not", "not_in"):
            second = self.word_at(span[1])
            span = (span[0], second[1]) if second else span
        self.add(slot, node, "comparison", span, COMPARISONS[operator])

    def see_IntNode(self, slot: Slot, node: Any) -> None:
        span = self.word_at(node.pos[1:])
        if span is not None:
            self.add(slot, node, "constant", span, more(str(node.value)))

    def see_BoolNode(self, slot: Slot, node: Any) -> None:
        span = self.word_at(node.pos[1:])
        if span is not None:
            self.add(slot, node, "constant", span, str(not node.value))

    def see_NameNode(self, slot: Slot, node: Any) -> None:
        span = self.word_at(node.pos[1:])
        if str(node.name) in self.constants and span is not None:
            self.add(slot, node, "constant", span, f"({node.name} + 1)")

    def see_IfClauseNode(self, slot: Slot, node: Any) -> None:
        self.negated(Slot(node, "condition"), node.pos[1:])

    def see_WhileStatNode(self, slot: Slot, node: Any) -> None:
        if kind_of(node.condition) != "BoolNode":
            self.negated(Slot(node, "condition"), node.pos[1:])

    def see_CondExprNode(self, slot: Slot, node: Any) -> None:
        self.negated(Slot(node, "condition"), node.pos[1:])

    def see_NotNode(self, slot: Slot, node: Any) -> None:
        self.note_condition(node.operand)

    def note_condition(self, node: Any) -> None:
        self.conditions.append(node)
        if kind_of(node) == "BoolBinopNode":
            self.note_condition(node.operand1)
            self.note_condition(node.operand2)

    def negated(self, slot: Slot, place: Place) -> None:
        self.note_condition(slot.get())
        span = self.text.condition(place)
        self.add(slot, slot.get(), "condition", span, f"not ({self.text.between(*span)})")

    def only_of_memory(self, node: Any) -> bool:
        """Whether the condition only guards `raise MemoryError`."""
        words = self.text.at(node.pos[1:])
        behind = self.text.at((words.end[0] + 1, 10**4))
        return self.text.whole(behind) == "raise MemoryError"


def says_whether(node: Any) -> bool:
    """Whether its value is a truth, and not one of two operands."""
    if kind_of(node) == "BoolBinopNode":
        return says_whether(node.operand1) and says_whether(node.operand2)
    return kind_of(node) in ("PrimaryCmpNode", "NotNode", "BoolNode")


def copyable(node: Any) -> bool:
    return not any(kind_of(one) in KNIT for one in every(node))


def more(number: str) -> str:
    """The literal of ``number`` + 1."""
    digits = number.replace("_", "").rstrip("uUlL")
    value = int(digits, 0) + 1
    return hex(value) if digits.lower().startswith("0x") else str(value)


def parse(path: Path) -> Any:
    from Cython.Compiler.TreeFragment import parse_from_strings

    return parse_from_strings(path.stem, path.read_text())


def find(module: str, path: Path) -> list[Site]:
    """All mutants of a module, in the order of its text."""
    return [change.site for change in Finder(module, path.read_text(), parse(path)).changes]


def drawn(sites: list[Site], seed: int) -> list[Site]:
    """The sites in the order in which they are drawn, which depends on module and seed."""
    order = list(sites)
    random.Random(f"{sites[0].module if sites else ''} {seed}").shuffle(order)
    return order
