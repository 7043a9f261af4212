"""``flashfs.crash(...)``: campaigns of power cuts from Python."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flashfs.crash import campaign
from flashfs.errors import UsageError
from flashfs.ftl import scheme
from flashfs.ftl.class_names import names_of

if TYPE_CHECKING:
    import polars


def crash(
    ftl: str | type | Sequence[str | type],
    *,
    tier: str | Sequence[str] = ("sweep", "random", "host"),
    cuts: int = 1000,
    seed: int | None = None,
    jobs: int = 1,
) -> polars.DataFrame:
    """Cut the power of random programs, as `flashfs crash run` does: a row for each FTL and tier.

    Columns: ``ftl``, ``tier``, ``seed``, ``cuts``, ``cases``, ``failed``, ``seconds``, and in ``failures`` the lines
    that `flashfs crash replay` takes. ``cuts`` is the least number of cuts for each FTL and tier; ``seed`` is random if
    None. UsageError for an unknown FTL or tier.
    """
    import polars

    seed = secrets.randbelow(1 << 32) if seed is None else seed
    tiers = [tier] if isinstance(tier, str) else list(tier)
    for name in tiers:
        if name not in campaign.TIERS or name == "every":
            known = ", ".join(one for one in campaign.TIERS if one != "every")
            raise UsageError(f"tier {name!r}: use {known}")
    rows: list[dict[str, Any]] = []
    for spec in names_of(ftl):
        scheme(spec)
        for name in tiers:
            found = campaign.run(spec, name, seed, cuts, jobs=jobs)
            rows.append({
                "ftl": spec, "tier": name, "seed": seed, "cuts": found.cuts, "cases": found.cases,
                "failed": found.failed, "seconds": found.seconds, "failures": [one.replay for one in found.failures],
            })  # fmt: skip
    return polars.DataFrame(rows, schema_overrides={"failures": polars.List(polars.String)})
