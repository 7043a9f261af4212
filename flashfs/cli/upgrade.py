"""``flashfs upgrade``: make an older image one of the newest format version."""

from __future__ import annotations

from flashfs.cli import options, show


def command(image: options.Image, as_json: options.Json = False) -> None:
    """Bring an image to the newest format version.

    The image gets the features that its FTL writes. Only its header changes; if that is interrupted, the image is as it
    was, or upgraded. Older versions of flashfs cannot open it afterwards.
    """
    from flashfs.bound import upgrade

    done = upgrade(image)
    if as_json:
        found = {"image": str(image), "before": done.before, "after": done.after, "added": list(done.added)}
        show.result({**found, "mended": done.mended, "changed": done.changed}, as_json=True)
        return
    did = [f"version {done.before} is {done.after} now"] if done.before != done.after else []
    did += [f"it has the feature {name} now" for name in done.added]
    did += ["one copy of its header was damaged or older, and is what the other is now"] if done.mended else []
    show.line(f"{image}: {'; '.join(did) or f'of version {done.after} already; nothing to do'}")
