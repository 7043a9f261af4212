"""Watching a device while it is used: what ``flashfs top`` shows.

Everything comes from the texts that a mount has beside `disk`, and nbdkit at a socket: every user who may read them may
watch, the device does not notice, and any other program can read the same. ``look`` reads them once, ``figures`` says
what happened between two looks, ``Picture`` draws that on a terminal of any size, and ``live`` does so until the user
quits.
"""

from flashfs.watch._figures import figures
from flashfs.watch._live import INTERVAL_S, live, shots
from flashfs.watch._look import Gone, Look, look
from flashfs.watch._picture import Picture

__all__ = ["INTERVAL_S", "Gone", "Look", "Picture", "figures", "live", "look", "shots"]
