"""Names that an FTL in Python may import (all optional); docs/python-ftl.md describes each."""

from flashfs.errors import DeviceFullError, FtlError
from flashfs.ftl import Option
from flashfs.ftl.python import Cleans, Ftl, Guesses, LearnsRuns, Places, Saves, Shares, Stamps, Validates
from flashfs.parts.python.python_ftl import Chip

__all__ = [
    "Chip",
    "Cleans",
    "DeviceFullError",
    "Ftl",
    "FtlError",
    "Guesses",
    "LearnsRuns",
    "Option",
    "Places",
    "Saves",
    "Shares",
    "Stamps",
    "Validates",
]
