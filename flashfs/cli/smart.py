"""``flashfs smart``: how a device is and what it did in its life, as an SSD's own health log says it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from flashfs.cli import options, show, units


def command(
    where: Annotated[
        Path,
        typer.Argument(
            parser=Path,
            metavar="IMAGE|MOUNTPOINT",
            help="An image, also one that `flashfs nbd` serves; or what is mounted.",
        ),
    ],
    ftl: options.Named = None,
    trust: options.Trust = False,
    as_json: options.Json = False,
) -> None:
    """Show the health of a device: what the host and the FTL wrote in all its life, how much of the chip's endurance
    is used and of its spare blocks left, unsafe shutdowns, and errors. Exit code 1 if it has failed, has lost pages, or
    has an alarm."""
    from flashfs.fuse import health
    from flashfs.nbd import looking

    with show.working(f"reading {where}"):
        found = looking.smart(where, ftl=ftl, trust=trust)
    if as_json:
        show.result(found, as_json=True)
    else:
        show.result(_table(found, health.alarms(found)), as_json=False, title="health")
    if health.is_bad(found):
        raise typer.Exit(1)


def _table(found: dict[str, Any], alarms: list[str]) -> dict[str, Any]:
    """What an NVMe drive's log has, under its names, and then what is ours."""
    life, page, erases = found["life"], found["page_bytes"], found["erases"]
    least = "at least " if found["at_least"] else ""
    well = "an alarm, see below" if alarms else "passed"
    waf = f", {life['programs'] / life['host_writes']:.2f} times that" if life["host_writes"] else ""
    return {
        "device": found["image"],
        "FTL": found["ftl"],
        "overall": found["failed"] or ("lost pages" if found["lost"] else well),
        "available spare": f"{found['spare']:g} %",
        "percentage used": f"{found['used']:g} % of {found['endurance']:,} erases a block",
        "data units written": f"{least}{units.shown(life['host_writes'] * page)} by the host in all its life",
        "NAND written": f"{least}{units.shown(life['programs'] * page)}{waf}",
        "power cycles": f"{found['power_cycles']:,}",
        "unsafe shutdowns": f"{life['unsafe_shutdowns']:,}",
        "media errors": f"{found['unreadable']:,} reads that failed, {found['lost']:,} pages lost since this mount",
        "corrected": f"{found['corrected']:,} reads since this mount",
        "erases": f"{erases['min']:,} to {erases['max']:,} a block, {erases['mean']:g} on average",
        "bad blocks": f"{found['factory_bad']:,} of {found['blocks']:,} from the factory, {found['grown_bad']:,} grown",
        "alarms": "; ".join(alarms) or "none",
        **(
            {"host disk": "see alarms" if found["host_disk"] else "no request failed for it"}
            if "host_disk" in found
            else {}
        ),
    }
