"""Errors of the device and of the schemes: one line each, naming what was given and what would do."""

from __future__ import annotations

from opcode import opmap

from nandimg.errors import NandimgError


class FlashfsError(Exception):
    """Base of every error that flashfs raises on purpose. ``exit_code`` is what a command ends with."""

    exit_code = 1


class UsageError(FlashfsError):
    """The caller asked for something that does not exist or does not fit: exit code 2."""

    exit_code = 2


class BindError(FlashfsError):
    """The scheme cannot run on this image (another is bound, the chip or the DRAM is too small, ...)."""


class RoomError(BindError):
    """The chip has too few blocks beside the host's pages for what the scheme keeps: over-provisioning would help.
    ``why`` is the message without what would do."""

    def __init__(self, why: str, would_do: str = "a larger --op") -> None:
        super().__init__(f"{why}; {would_do} would do")
        self.why = why


class UntrustedError(BindError):
    """The header of an image names code that is not registered, and nobody said that it may be imported."""


class CorruptError(FlashfsError):
    """The image holds what no power cut can have left; the message names the page."""


class MapLostError(CorruptError):
    """A translation page that a recovery needs cannot be read: it has to do without the checkpoint that names it."""


class DeviceFullError(FlashfsError):
    """No block can be cleaned: more live pages than the healthy blocks can hold."""


class DeviceFailedError(FlashfsError, OSError):
    """The device takes no more changes (EIO) until its image is opened again: going on could lose what was promised.
    What can be read still can."""

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


class FtlError(FlashfsError, OSError):
    """An FTL written in Python made a mistake (EIO); the message names the FTL, the call, and what was expected."""

    def __init__(self, why: str) -> None:
        OSError.__init__(self, 5, why)

    def __str__(self) -> str:
        return str(self.args[1])


def one_line(error: BaseException) -> tuple[str, int]:
    """(what to tell the user, exit code) for anything that ended a command: never a traceback, never two lines."""
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


#: what a class of other people's may raise, and it is a mistake of that class: `sys.exit()` is no rarity there
MISTAKES = (Exception, SystemExit, GeneratorExit)


def is_mistake(error: BaseException) -> bool:
    """Whether a class of other people's raised this itself. KeyboardInterrupt is one only where the class has a
    ``raise`` of it: else somebody pressed Ctrl-C while it ran."""
    if not isinstance(error, KeyboardInterrupt):
        return isinstance(error, MISTAKES)
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return at is not None and at.tb_frame.f_code.co_code[at.tb_lasti] == opmap["RAISE_VARARGS"]
