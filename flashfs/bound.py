"""What the header of an image says about the FTL that it is bound to: its name, its features, its fixed options."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import nandimg
from flashfs.errors import BindError, CorruptError, UntrustedError, UsageError
from flashfs.ftl import Scheme, is_registered, scheme
from nandimg import Feature, Image

#: each page's OOB holds the page's number in its block, in bits that belonged to the order before
PAGE_NUMBERS = Feature("flashfs.page-numbers", "incompatible")
CHECKPOINT_FILLS = Feature("flashfs.checkpoint-fills", "incompatible")
#: features of the engine, which an image of any scheme may have ("flashfs.what")
FEATURES = (CHECKPOINT_FILLS, PAGE_NUMBERS)


def check_trust(path: str | Path | None, name: str) -> None:
    """UntrustedError if an image's header names an FTL that is not registered: the image would choose code to run."""
    if ":" in name and not is_registered(name):
        raise UntrustedError(
            f"{path}: its header names {name}, which is not registered: to import it as the FTL, use "
            f"--ftl {shlex.quote(name)}, or --trust for any that an image names"
        )


def upgrade(path: str | Path) -> nandimg.Upgrade:
    """Upgrade an image to the newest format version, with the features that engine and scheme give to new images; only
    its header changes. A scheme that is not registered is not asked for its features. ImageError for a file that is not
    a usable image, is in use, or is newer than this program."""
    image = nandimg.open_image(path)
    try:
        name = image.header.ftl
        features = (*FEATURES, *scheme(name).features) if is_registered(name) else FEATURES
        image.header.refuse_unknown(path, [feature.name for feature in features], readonly=False)
        return image.upgrade(features if name else ())
    finally:
        image.close()


def check_features(image: Image, of: Scheme, *, readonly: bool) -> None:
    """ImageError if the image has a feature unknown to engine and scheme; BindError if it will be written and lacks a
    feature that the scheme needs for writing. An image without a feature of the engine is written as before that
    feature."""
    known = [feature.name for feature in (*FEATURES, *of.features)]
    image.header.refuse_unknown(image.path, known, readonly=readonly)
    there = {feature.name for feature in image.header.features}
    for feature in of.features:
        if not readonly and feature.kind != "compatible" and feature.name not in there:
            raise BindError(f"{image.path}: of version {image.header.version}, without the feature {feature.name}; "
                            f"`flashfs upgrade {image.path}` adds it")  # fmt: skip


def stored_options(image: Image, of: Scheme) -> dict[str, Any]:
    """The options fixed at binding, from the header; CorruptError if it holds anything else. An option added after the
    image was bound has its ``before`` value."""
    fixed = {option.name: option for option in of.options if option.fixed}
    out: dict[str, Any] = {name: option.before for name, option in fixed.items() if option.before is not None}
    for name, value in (image.header.options or {}).items():
        if name not in fixed:
            raise CorruptError(f"{image.path}: header: {of.name} stores no option {name!r}")
        try:
            out[name] = fixed[name].parse(value)
        except UsageError as error:
            raise CorruptError(f"{image.path}: header: {error}") from None
    return out
