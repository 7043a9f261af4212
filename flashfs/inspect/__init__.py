"""What is in an image, offline: the views of ``flashfs dump``, as plain dicts and lists.

Nothing here changes a byte. A crashed image is recovered in memory and shown as a mount would find it; a blank one,
and one that no recovery can make sense of, is shown as the bare chip, and the view says so. So is one whose header
names an FTL that is not registered, unless ``trust`` is that name, or True for any. SPEC.md has the byte formats.
"""

from flashfs.inspect._html import check_place as check_html
from flashfs.inspect._html import page as html
from flashfs.inspect._html import put as put_html
from flashfs.inspect._html import write as write_html
from flashfs.inspect._image import blocks, folded_blocks, folded_tables, header, unfolded
from flashfs.inspect._log import log
from flashfs.inspect._lpa import lpa
from flashfs.inspect._page import page
from flashfs.inspect._report import report
from flashfs.inspect._view import Copy, Spare, View, held, opened
from flashfs.inspect._whole import check, problems, recovery, repair, scheme

__all__ = [
    "Copy",
    "Spare",
    "View",
    "blocks",
    "check",
    "check_html",
    "folded_blocks",
    "folded_tables",
    "header",
    "held",
    "html",
    "log",
    "lpa",
    "opened",
    "page",
    "problems",
    "put_html",
    "recovery",
    "repair",
    "report",
    "scheme",
    "unfolded",
    "write_html",
]
