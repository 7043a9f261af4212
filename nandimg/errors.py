"""The errors of the chip and its image; each message is one line that names what was given and what to do."""

from __future__ import annotations

from pathlib import Path


class NandimgError(Exception):
    """Base of every error that this library raises on purpose."""


class NandError(NandimgError):
    """A breach of the rules of NAND: it names the operation, the address and the rule, and nothing was changed.

    Attributes: ``operation`` ("program", ...), ``block``, ``page`` (page within the block) and ``rule``.
    """

    def __init__(self, operation: str, block: int, page: int, rule: str) -> None:
        super().__init__(f"{operation} of block {block} page {page}: {rule}")
        self.operation = operation
        self.block = block
        self.page = page
        self.rule = rule


class ImageError(NandimgError):
    """The image cannot be created or opened; the message names the file and the field at fault."""


class InUseError(ImageError):
    """Another process has the image open. Attributes: ``path``, and that process's ``pid``, None if unknown."""

    def __init__(self, path: Path, pid: int | None) -> None:
        by = "another process" if pid is None else f"process {pid}"
        super().__init__(f"{path}: in use by {by}: unmount it there first, or end that process")
        self.path = path
        self.pid = pid


class NoRoomError(ImageError):
    """The host's disk has no room for the image's tables. Attributes: ``errno`` and ``need_bytes``, the size of the
    tables."""

    def __init__(self, line: str, errno: int, need_bytes: int) -> None:
        super().__init__(line)
        self.errno = errno
        self.need_bytes = need_bytes


class GeometryError(NandimgError, ValueError):
    """A geometry that no chip can have; the message names the field and what to use."""


class PowerCut(NandimgError):
    """The power is gone (injected by a fault plan). Every later operation on that chip raises it again."""

    def __init__(self, operation: int, shape: str) -> None:
        super().__init__(f"power cut at flash operation {operation} ({shape})")
        self.operation = operation
        self.shape = shape
