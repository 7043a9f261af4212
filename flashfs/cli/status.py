"""``flashfs status``: what is up."""

from __future__ import annotations

from flashfs.cli import options, show


def command(as_json: options.Json = False) -> None:
    """List what is mounted and served.

    Of every mount: its image, FTL, process, where `disk` is, and the file system on a loop device over it. Then every
    image that `flashfs nbd` serves.
    """
    from flashfs.fuse.status import status
    from flashfs.nbd.serving import servers

    found, served = [one.as_dict() for one in status()], servers()
    if as_json:
        show.result({"mounts": found, "nbd": [one.as_dict() for one in served]}, as_json=True)
        return
    if found:
        # a process number is a name, and has no thousands
        show.rows([{**one, "pid": str(one["pid"] or "-")} for one in found])
    for one in served:
        what = f"{one.image}: {one.ftl or 'blank'}, served by process {one.pid} at {one.uri}"
        show.line(f"{what}; `kill {one.pid}` ends that")
    if not found and not served:
        show.line("nothing is mounted, and `flashfs nbd` serves nothing")
