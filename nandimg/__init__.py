"""A NAND chip in a sparse file: geometry, image format, the rules of flash, virtual time, faults.

A library of its own: what an OOB's bytes mean is the business of whoever drives the chip.
"""

from nandimg._chip import Chip, checksum, page_checksum
from nandimg._faults import Cut, FaultyNand
from nandimg._nand import Nand
from nandimg.errors import GeometryError, ImageError, NandError, NandimgError, PowerCut
from nandimg.geometry import Geometry
from nandimg.image import Header, Image, create, inspect, layout_of, memory_image, open_image
from nandimg.presets import PRESETS, Preset

__all__ = [
    "PRESETS",
    "Chip",
    "Cut",
    "FaultyNand",
    "Geometry",
    "GeometryError",
    "Header",
    "Image",
    "ImageError",
    "Nand",
    "NandError",
    "NandimgError",
    "PowerCut",
    "Preset",
    "checksum",
    "create",
    "inspect",
    "layout_of",
    "memory_image",
    "open_image",
    "page_checksum",
]
