"""Runs one of the measurements of this folder:

    python bench                     # lists them
    python bench NAME [--help | ...]

Raw results go to bench/results, with the machine and the commit.
"""

from __future__ import annotations

import ast
import sys
from importlib import import_module
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[0] = str(HERE.parent)  # not this folder, whose files have names of their own
sys.path.append(sys.path.pop(0))  # after PYTHONPATH, so that these scripts can measure another tree


def measurements() -> dict[str, str]:
    """{name: the first sentence about it} of every file here that has a ``main``."""
    found = {}
    for path in sorted(HERE.glob("*.py")):
        tree = ast.parse(path.read_text())
        functions = {one.name for one in tree.body if isinstance(one, ast.FunctionDef)}
        if path.stem != "__main__" and "main" in functions:
            about = " ".join((ast.get_docstring(tree) or "").split("\n\n")[0].split())
            found[path.stem] = about.partition(": ")[0].partition(". ")[0].removesuffix(".")
    return found


def main() -> int:
    known = measurements()
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        print("\n".join(f"  {name:18} {about}" for name, about in known.items()))
        return 0
    name = sys.argv[1].replace("-", "_")
    if name not in known:
        print(f"bench: {sys.argv[1]}: there is {', '.join(known)}", file=sys.stderr)
        return 2
    sys.argv[:2] = [f"bench {name}"]
    return import_module(f"bench.{name}").main() or 0


sys.exit(main())
