"""``python -m flashfs``: as ``python -m flashfs.cli``. By name, because no module of the package needs its commands."""

from runpy import run_module

run_module("flashfs.cli", run_name="__main__")
