"""A NAND chip in a sparse file: geometry, image format, the rules of flash, virtual time, faults.

The library can be used alone: only the program that drives the chip knows what the bytes of an OOB mean.
"""

from nandimg._chip import Chip, checksum, page_checksum, places_of
from nandimg._faults import Cut, FaultyNand
from nandimg._filter import NandFilter
from nandimg._nand import Nand
from nandimg.cloning import Clone, clone
from nandimg.errors import GeometryError, ImageError, NandError, NandimgError, PowerCut
from nandimg.faults import Fault, dress
from nandimg.geometry import Geometry
from nandimg.header import Feature, Header, Region, layout_of
from nandimg.image import Image, Upgrade, create, inspect, memory_image, open_image
from nandimg.presets import PRESETS, Preset

__all__ = [
    "PRESETS",
    "Chip",
    "Clone",
    "Cut",
    "Fault",
    "FaultyNand",
    "Feature",
    "Geometry",
    "GeometryError",
    "Header",
    "Image",
    "ImageError",
    "Nand",
    "NandError",
    "NandFilter",
    "NandimgError",
    "PowerCut",
    "Preset",
    "Region",
    "Upgrade",
    "checksum",
    "clone",
    "create",
    "dress",
    "inspect",
    "layout_of",
    "memory_image",
    "open_image",
    "page_checksum",
    "places_of",
]
