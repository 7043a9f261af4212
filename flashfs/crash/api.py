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
    length: int = 3,
    seed: int | None = None,
    jobs: int = 1,
) -> polars.DataFrame:
    """Cut the power of random programs, as `flashfs crash run` does: a row for each FTL and tier.

    Columns: ``ftl``, ``tier``, ``seed``, ``cuts``, ``cases``, ``failed``, ``seconds``, and in ``failures`` the lines
    that `flashfs crash replay` takes. ``cuts`` is the least number of cuts for each FTL and tier; ``seed`` is random if
    None. Tier "every" runs all programs of up to ``length`` words instead. UsageError for an unknown FTL or tier, and
    for numbers that the command refuses too.
    """
    import polars

    seed = secrets.randbelow(1 << 32) if seed is None else seed
    tiers = [tier] if isinstance(tier, str) else list(tier)
    for name in tiers:
        if name not in campaign.TIERS:
            raise UsageError(f"tier {name!r}: use {', '.join(campaign.TIERS)}")
    for what, value, least in (("cuts", cuts, 1), ("jobs", jobs, 1), ("length", length, 0)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise UsageError(f"{what} = {value!r:.60}: use a whole number from {least} up")
    rows: list[dict[str, Any]] = []
    for spec in names_of(ftl):
        scheme(spec)
        for name in tiers:
            found = campaign.run(spec, name, seed, length if name == "every" else cuts, jobs=jobs)
            rows.append({
                "ftl": spec, "tier": name, "seed": seed, "cuts": found.cuts, "cases": found.cases,
                "failed": found.failed, "seconds": found.seconds, "failures": [one.replay for one in found.failures],
            })  # fmt: skip
    return polars.DataFrame(rows, schema_overrides={"failures": polars.List(polars.String)})
