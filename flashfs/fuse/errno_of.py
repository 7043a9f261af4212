"""The errno that the host gets for an error, the same under each server."""

from __future__ import annotations

import errno
import logging

from flashfs.errors import DeviceFullError

log = logging.getLogger(__name__)


def errno_of(operation: str, offset: int, error: BaseException, why: str | None = None) -> int:
    """The errno that the host sees for ``error``: its own if it has one, else EIO; and one line in the log, with
    ``why`` in place of the error's own text if given."""
    if isinstance(error, DeviceFullError):
        code = errno.ENOSPC
    elif isinstance(error, OSError) and error.errno:
        code = error.errno
    else:
        code = errno.EIO
    why = why or f"{type(error).__name__}: {' '.join(str(error).split())}"
    log.error("%s at byte %d: %s", operation, offset, why)
    return code
