"""Watching a device while it is used: what ``flashfs top`` shows.

Everything comes from the texts that a mount has beside `disk`, and nbdkit at a socket: who may read them may watch, the
device knows nothing of it, and what is shown can be had by any other program. ``look`` reads them once, ``figures``
says what happened between two looks, ``Picture`` draws that on a terminal of any size, and ``live`` does so until it is
told to stop.
"""

from flashfs.watch._figures import figures
from flashfs.watch._live import INTERVAL_S, live, shots
from flashfs.watch._look import Gone, Look, look
from flashfs.watch._picture import Picture

__all__ = ["INTERVAL_S", "Gone", "Look", "Picture", "figures", "live", "look", "shots"]
