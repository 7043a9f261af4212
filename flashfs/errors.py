"""Errors of the device and of the schemes: the message is one line, with what was given and what to do."""

from __future__ import annotations

import errno
from opcode import opmap

from nandimg.errors import NandimgError


class FlashfsError(Exception):
    """Base of every error that flashfs raises on purpose. ``exit_code`` is the exit code of a command."""

    exit_code = 1


class UsageError(FlashfsError):
    """An argument names something that does not exist or does not fit: exit code 2."""

    exit_code = 2


class BindError(FlashfsError):
    """The scheme cannot run on this image (another is bound, the chip or the DRAM is too small, ...)."""


class RoomError(BindError):
    """The chip has too few blocks besides the host's pages for the scheme: more over-provisioning would help. ``why``
    is the message without the advice."""

    def __init__(self, why: str, would_do: str = "a larger --op") -> None:
        super().__init__(f"{why}; use {would_do}")
        self.why = why


class UntrustedError(BindError):
    """The header of an image names an FTL that is not registered, and the caller did not allow its import."""


class CorruptError(FlashfsError):
    """Damage in the image that no power cut can cause; the message says where."""


class MapLostError(CorruptError):
    """A translation page that a recovery needs cannot be read: recovery goes on without the checkpoint that names
    it."""


class DeviceFullError(FlashfsError):
    """No block can be cleaned: more live pages than the healthy blocks can hold."""


class DeviceFailedError(FlashfsError, OSError):
    """The device refuses changes (EIO) until its image is opened again: further changes could lose acknowledged data.
    Reads still work."""

    def __init__(self, why: str) -> None:
        OSError.__init__(self, 5, f"{why}; nothing more is changed until the image is mounted again")

    def __str__(self) -> str:
        return str(self.args[1])


class UncorrectableError(FlashfsError, OSError):
    """A page that cannot be read (EIO) or that holds another LPA's data; ``lpa`` names it."""

    def __init__(self, lpa: int, why: str) -> None:
        OSError.__init__(self, 5, f"LPA {lpa}: {why}")
        self.lpa = lpa

    def __str__(self) -> str:
        return str(self.args[1])


class AtomicRemapError(FlashfsError, OSError):
    """A remap that must be done as a whole, and cannot be (EOPNOTSUPP); nothing is changed."""

    def __init__(self, why: str) -> None:
        OSError.__init__(self, errno.EOPNOTSUPP, why)

    def __str__(self) -> str:
        return str(self.args[1])


class FtlError(FlashfsError, OSError):
    """An FTL written in Python made a mistake (EIO); the message names the FTL, the call, and what was expected."""

    def __init__(self, why: str) -> None:
        OSError.__init__(self, 5, why)

    def __str__(self) -> str:
        return str(self.args[1])


def one_line(error: BaseException) -> tuple[str, int]:
    """(message for the user, exit code) for any error that ends a command: no traceback, a single line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", 130
    if isinstance(error, OSError) and not isinstance(error, FlashfsError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}", 1
    text = " ".join(str(error).split())
    if isinstance(error, (FlashfsError, NandimgError)):
        return text, getattr(error, "exit_code", 1)
    return f"internal error: {type(error).__name__}: {text}", 1


#: exceptions that count as mistakes of a user's class: such classes may well call `sys.exit()`
MISTAKES = (Exception, SystemExit, GeneratorExit)


def is_mistake(error: BaseException) -> bool:
    """Whether a user's class raised this itself. KeyboardInterrupt counts only if the class raises it explicitly:
    otherwise the user pressed Ctrl-C while it ran."""
    if not isinstance(error, KeyboardInterrupt):
        return isinstance(error, MISTAKES)
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return at is not None and at.tb_frame.f_code.co_code[at.tb_lasti] == opmap["RAISE_VARARGS"]
