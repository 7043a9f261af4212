"""``flashfs.check(...)``: the conformance suite from Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flashfs.check import suite
from flashfs.ftl.class_names import names_of

if TYPE_CHECKING:
    import polars


def check(
    ftl: str | type | Sequence[str | type],
    *,
    only: Sequence[str] | None = None,
    scale: str = "quick",
    seed: int = 0,
    jobs: int = 1,
) -> polars.DataFrame:
    """Run the conformance suite on FTLs, as `flashfs check` does: a row for each check.

    Columns: ``ftl``, ``id``, ``title``, ``result`` (pass, fail or skip), ``why`` it failed or was skipped, ``seconds``,
    ``replay``, the command that reproduces a failure. ``only``: the ids of the checks to run. An FTL is a name, the
    ``package.module:Class`` of your own, or that class. UsageError for an FTL, a check or a scale that does not exist.
    """
    import polars

    found = suite.run(names_of(ftl), only=only, scale=scale, seed=seed, jobs=jobs)
    rows = [outcome.as_dict() for outcome in found]
    names = ("ftl", "id", "title", "result", "why", "seconds", "replay")
    return polars.DataFrame([{name: row.get(name) for name in names} for row in rows], infer_schema_length=None)
