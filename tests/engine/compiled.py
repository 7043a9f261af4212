"""Parts of an FTL that tests bring as .pyx files beside them, compiled against the engine's interfaces."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
SETUP = """
from Cython.Build import cythonize
from setuptools import Extension, setup
setup(name={name!r}, ext_modules=cythonize([Extension({name!r}, [{name!r} + ".pyx"], include_dirs=[{nand!r}])],
      include_path=[{root!r}], compiler_directives={{"language_level": "3", "boundscheck": False}}))
"""


def compiled(name: str, where: Path) -> Any:
    """The module ``name``, built in the empty folder ``where``."""
    shutil.copy(Path(__file__).parent / f"{name}.pyx", where)
    (where / "setup.py").write_text(SETUP.format(name=name, nand=str(ROOT / "nandimg"), root=str(ROOT)))
    done = subprocess.run([sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"], cwd=where, text=True,
                          capture_output=True)  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    made, = where.glob(f"{name}.*.so")
    spec = importlib.util.spec_from_file_location(name, made)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
