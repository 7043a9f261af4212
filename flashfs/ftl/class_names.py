"""FTLs given as a class instead of a name: each gets a name for the rest of this process, and of those that it
starts.

A class of a notebook is in no file that another process could import, so it is sent by value, pickled with
cloudpickle; one that can be imported is sent by its name.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from flashfs.errors import FlashfsError, UsageError, one_line

NAME_BYTES = 28  #: room for the name of the FTL in the header of an image
CLASSES: dict[str, type] = {}  #: by name; a name has its newest class, as when a notebook's cell is run again
_RECEIVED: dict[str, bytes] = {}


def name_of(ftl: str | type, *, stored: bool = False) -> str:
    """The name of an FTL that is given as a name or as a class: ``module:Class``. A class whose name is too long for a
    header gets a shorter one, unless the name is ``stored`` in an image, where it must find the class again.
    """
    if not isinstance(ftl, type):
        if not isinstance(ftl, str):
            raise UsageError(f"ftl = {ftl!r:.60}: use the name of an FTL, or a class")
        return ftl
    names = [f"{ftl.__module__}:{ftl.__qualname__}"]
    if not stored:
        names += [f"{ftl.__module__.rpartition('.')[2]}:{ftl.__name__}", f":{ftl.__name__}"]
    name = next((one for one in names if len(one.encode()) <= NAME_BYTES), names[0])
    CLASSES[name] = ftl
    return name


def names_of(ftls: str | type | Iterable[str | type]) -> list[str]:
    """Of one FTL, or several."""
    some = [ftls] if isinstance(ftls, str | type) else ftls
    return [name_of(one) for one in some]


def packed(names: Iterable[str]) -> dict[str, bytes]:
    """Those of these FTLs that were given as classes, for another process; UsageError for one that cannot be sent."""
    out = {}
    for name in names:
        if name in CLASSES:
            import cloudpickle

            try:
                out[name] = cloudpickle.dumps(CLASSES[name])
            except Exception as error:  # an object that the class refers to may raise anything when pickled
                raise UsageError(f"FTL {name}: it cannot be sent to another process: {one_line(error)[0]}") from error
    return out


def unpack(classes: Mapping[str, bytes]) -> None:
    """What ``packed`` made: from now on these names are those classes here too."""
    import pickle

    for name, raw in classes.items():
        if _RECEIVED.get(name) != raw:
            try:
                CLASSES[name] = pickle.loads(raw)
            except Exception as error:
                raise UsageError(f"FTL {name}: it cannot be made again here: {one_line(error)[0]}") from error
            _RECEIVED[name] = raw


def code(name: str) -> bytes:
    """Bytes that change with the class of that name: its file, or a digest of its methods' sources and constants."""
    cls = CLASSES[name]
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    if file is not None:
        return Path(file).read_bytes()
    digest = hashlib.sha256()
    for one in cls.__mro__[:-1]:
        for attribute, value in sorted(vars(one).items()):
            function = inspect.unwrap(getattr(value, "__func__", value))
            if inspect.isfunction(function):
                try:
                    digest.update(inspect.getsource(function).encode())
                except OSError:
                    raise FlashfsError(f"FTL {name}: {attribute} has no source, so a change of it would not show; use "
                                       "a class in a file") from None  # fmt: skip
            elif isinstance(value, str | bytes | int | float | tuple) and not attribute.startswith("__"):
                digest.update(f"{attribute}={value!r}".encode())
    return digest.digest()
