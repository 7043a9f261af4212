"""``flashfs status``: what is up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flashfs.cli import options, show

if TYPE_CHECKING:
    from flashfs.fuse.status import Mounted


def command(as_json: options.Json = False) -> None:
    """List what is mounted and served.

    Of every mount: its image, FTL, process, where `disk` is, and the file system on a loop device over it. Then every
    image that `flashfs nbd` serves, or that another process has.
    """
    from flashfs.fuse import users
    from flashfs.fuse.nbd_servers import servers
    from flashfs.fuse.status import status

    served = servers()
    mounted = status([one.pid for one in served])
    if as_json:
        show.result(
            {"mounts": [one.as_dict() for one in mounted], "nbd": [one.as_dict() for one in served]}, as_json=True
        )
        return
    if mounted:
        show.rows([_row(one) for one in mounted])
    for row in mounted:
        if row.state == "held":
            by = users.by(row.held_by)
            show.line(f"{row.image}: not mounted here any more, and held by {by}: process {row.pid} ends after that")
    for one in served:
        what = f"{one.image}: {one.ftl or 'blank'}, served by process {one.pid} at {one.uri}"
        show.line(f"{what}; `kill {one.pid}` ends that")
    if not mounted and not served:
        show.line("nothing is mounted, and `flashfs nbd` serves nothing")


def _row(one: Mounted) -> dict[str, Any]:
    """For the table. A process number is a name, and has no thousands."""
    return {name: value for name, value in {**one.as_dict(), "pid": str(one.pid or "-")}.items() if name != "held_by"}
