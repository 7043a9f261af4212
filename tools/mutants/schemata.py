"""Mutant schemata: all mutants of a module in one translation, each with a number that chooses it at run time.

    python schemata.py MODULE.pyx CHOSEN.json OUT.c

run by the builder in the folder of the copied sources. ``CHOSEN.json`` lists (number, site). The tree that Cython's
parser makes of the module is changed before any later stage: a condition becomes ``(not c) ==
flashfs_mutant(17)``, a number ``n + flashfs_mutant(18)``, a statement that may be dropped is put into ``if not
flashfs_mutant(19)``, and for a changed operator the switch chooses between both expressions. Code without the GIL
stays so.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mutants.sites import Change, Finder, Site, kind_of

SWITCH = "flashfs_mutant"
DECLARED = f'cdef extern from "switch.h" nogil:\n    int {SWITCH}(int number) noexcept\n'
#: as setup.py has them
DIRECTIVES = {"language_level": "3", "boundscheck": False, "wraparound": False, "cdivision": True,
              "initializedcheck": False, "embedsignature": True}  # fmt: skip


def switch(pos: Any, number: int) -> Any:
    """The node of ``flashfs_mutant(number)``: whether that mutant is chosen."""
    from Cython.Compiler import ExprNodes
    from Cython.Compiler.StringEncoding import EncodedString

    function = ExprNodes.NameNode(pos, name=EncodedString(SWITCH))
    return ExprNodes.SimpleCallNode(pos, function=function, args=[ExprNodes.IntNode(pos, value=str(number))])


def negation(node: Any, number: int) -> Any:
    from Cython.Compiler import ExprNodes

    pos = node.pos
    return ExprNodes.PrimaryCmpNode(
        pos, operator="==", operand1=ExprNodes.NotNode(pos, operand=node), operand2=switch(pos, number)
    )


def copied(node: Any) -> Any:
    from Cython.Compiler.TreeFragment import TreeCopier

    return TreeCopier().visit(node)


def changed(node: Any, after: str) -> Any:
    """A copy of an expression or augmented assignment with another operator."""
    from Cython.Compiler import ExprNodes

    other = copied(node)
    if kind_of(node) == "InPlaceAssignmentNode":
        other.operator = after.removesuffix("=")
    elif kind_of(node) == "PrimaryCmpNode":
        other.operator = after.replace(" ", "_")
    elif kind_of(node) == "BoolBinopNode":
        other.operator = after
    else:
        return ExprNodes.binop_node(node.pos, after, other.operand1, other.operand2)
    return other


def guarded(pos: Any, condition: Any, body: Any, otherwise: Any = None) -> Any:
    """An if statement."""
    from Cython.Compiler import Nodes

    def listed(node: Any) -> Any:
        return Nodes.StatListNode(pos, stats=[node])

    clause = Nodes.IfClauseNode(pos, condition=condition, body=listed(body))
    return Nodes.IfStatNode(pos, if_clauses=[clause], else_clause=listed(otherwise) if otherwise else None)


def instrument(change: Change, number: int) -> None:
    """Insert the switch of one mutant; the node there may already have switches of others."""
    from Cython.Compiler import ExprNodes

    node, pos, there, site = change.node, change.node.pos, change.slot.get(), change.site
    if site.kind == "condition":
        new = negation(there, number)
    elif site.kind == "drop":
        new = guarded(pos, ExprNodes.NotNode(pos, operand=switch(pos, number)), there)
    elif kind_of(node) == "BoolNode":
        other = ExprNodes.BoolNode(pos, value=not node.value)
        new = ExprNodes.CondExprNode(pos, condition=switch(pos, number), true_val=other, false_val=there)
    elif site.kind == "constant":
        new = ExprNodes.binop_node(pos, "+", there, switch(pos, number))
    elif kind_of(node) == "InPlaceAssignmentNode":
        new = guarded(pos, switch(pos, number), changed(node, site.after), there)
    else:
        either = [changed(node, site.after), there]
        if change.is_truth:  # `not not` gives both a C type: Cython may take one of them for an object
            either = [ExprNodes.NotNode(pos, operand=ExprNodes.NotNode(pos, operand=one)) for one in either]
        new = ExprNodes.CondExprNode(pos, condition=switch(pos, number), true_val=either[0], false_val=either[1])
    change.slot.set(new)


def with_switches(module: str, source: str, tree: Any, chosen: dict[Site, int]) -> Any:
    """The tree with a switch for each of ``chosen``, innermost first, so that copies of outer nodes include it."""
    from Cython.Compiler.TreeFragment import parse_from_strings

    changes = [change for change in Finder(module, source, tree).changes if change.site in chosen]
    assert len(changes) == len(chosen), f"{module} is not the source that these mutants were drawn from"
    for change in reversed(changes):
        instrument(change, chosen[change.site])
    tree.body.stats.insert(0, parse_from_strings("switch", DECLARED).body)
    return tree


def translate(module: str, chosen: dict[Site, int], out: Path) -> int:
    """Write the C or C++ of the module; returns how many errors Cython found, which it printed."""
    from Cython.Compiler import Main, Pipeline

    source = Path(module).read_text()
    plain: Callable[[Any], Any] = Pipeline.parse_stage_factory

    def factory(context: Any) -> Callable[[Any], Any]:
        parse = plain(context)
        return lambda compilation: with_switches(module, source, parse(compilation), chosen)

    Pipeline.parse_stage_factory = factory
    try:
        options = Main.CompilationOptions(
            output_file=str(out), cplus=out.suffix == ".cpp", compiler_directives=dict(DIRECTIVES), emit_linenums=True,
            include_path=["."],
        )  # fmt: skip
        return int(Main.compile_single(module, options, module.removesuffix(".pyx").replace("/", ".")).num_errors)
    finally:
        Pipeline.parse_stage_factory = plain


def main() -> int:
    module, listed, out = sys.argv[1:]
    chosen = {Site(**site): number for number, site in json.loads(Path(listed).read_text())}
    return bool(translate(module, chosen, Path(out)))


if __name__ == "__main__":
    sys.exit(main())
