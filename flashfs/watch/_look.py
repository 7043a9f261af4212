"""One look at a device in use: its texts, read and checked."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashfs.errors import FlashfsError
from flashfs.fuse import asking
from flashfs.fuse.places import Place

# What must be there, and of which type: the rest is read with a default.
NEEDED: dict[str, dict[str, type | tuple[type, ...]]] = {
    "stats.json": {
        "server": dict, "host": dict, "nand": dict, "pool": dict, "dram": dict, "allocated": dict, "scheme": dict,
        "blocks_opened": int,
    },
    "smart.json": {"erases": dict},
    "config.json": {"ftl": str, "size": int, "server": str, "pid": int},
    "map.json": {
        "blocks": int, "pages_per_block": int, "states": list, "state": list, "valid": list, "erases": list,
    },
}  # fmt: skip
NUMBERS_MOST = 2**32  #: in a column of map.json
VANISHED = (errno.ENODEV, errno.ESTALE)


class Gone(FlashfsError):
    """The mount that was looked at has ended."""


@dataclass(frozen=True)
class Look:
    """The texts of one moment; ``blocks`` are the columns of map.json as arrays. ``at_s``: the server's own clock;
    ``asked`` is what the user named, if that is not ``place``, which has the texts."""

    place: str
    at_s: float
    stats: dict[str, Any]
    smart: dict[str, Any]
    config: dict[str, Any]
    map: dict[str, Any]
    blocks: dict[str, NDArray[np.uint32]]
    asked: Path | None = None

    def follows(self, other: Look) -> bool:
        """Whether the same server was looked at, so that the difference is what happened in between."""
        return self.config["pid"] == other.config["pid"] and self.at_s >= other.at_s


def look(place: Place, asked: Path | None = None, *, blocks: bool = True) -> Look:
    """Read the four texts; without ``blocks``, for figures alone, not map.json, which is long on a large chip. Gone if
    the mount has ended; FlashfsError for a text that cannot be used."""
    texts = {name: _read(place, name) for name in NEEDED if blocks or name != "map.json"}
    for name, text in texts.items():
        for field, kind in NEEDED[name].items():
            if not isinstance(text.get(field), kind):
                raise FlashfsError(f"{place.name}/{name} has no {field} that can be read: another version's?")
    stats, config, drawn = texts["stats.json"], texts["config.json"], texts.get("map.json", {})
    uptime = stats["server"].get("uptime_s")
    if not isinstance(uptime, int | float):
        raise FlashfsError(f"{place.name}/stats.json has no server.uptime_s that can be read: another version's?")
    columns = {name: _column(place, drawn, name) for name in ("state", "valid", "erases") if drawn}
    return Look(place.name, float(uptime), stats, texts["smart.json"], config, drawn, columns, asked)


def _column(place: Place, blocks: dict[str, Any], name: str) -> NDArray[np.uint32]:
    most = len(blocks["states"]) if name == "state" else NUMBERS_MOST
    try:
        column = np.array(blocks[name])
    except ValueError:  # lists of several lengths
        column = np.array(None)
    if column.shape == (blocks["blocks"],) and column.dtype.kind == "i" and 0 <= column.min() <= column.max() < most:
        return column.astype(np.uint32)
    raise FlashfsError(f"{place.name}/map.json: {name} is no list of {blocks['blocks']} numbers under {most}")


def _read(place: Place, name: str) -> dict[str, Any]:
    try:
        found = place.text(name)
    except FileNotFoundError:
        raise Gone(f"{place.name}: nothing is mounted there any more") from None
    except asking.DeadError as error:
        raise Gone(str(error)) from None
    except PermissionError:
        raise FlashfsError(f"{place.name} belongs to another user: watch it as that user") from None
    except OSError as error:
        if error.errno in VANISHED:
            raise Gone(f"{place.name}: nothing is mounted there any more") from None
        raise FlashfsError(f"{place.name}/{name}: {error.strerror}") from None
    except ValueError:
        raise FlashfsError(f"{place.name}/{name} is no JSON: another version's?") from None
    if not isinstance(found, dict):
        raise FlashfsError(f"{place.name}/{name} is no JSON object: another version's?")
    return found
