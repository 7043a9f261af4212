"""Pictures of results, fit for a paper: ``figure`` computes what is shown, as plain numbers, and ``draw`` draws it.

    table = flashfs.replay.results.read(["results.parquet"])
    draw(figure(table, "waf", baseline="pagemap"), Path("waf.pdf"))

A notebook shows what ``figure`` returns. ``flashfs.plot`` does all of it in one call.
"""

from flashfs.replay.plots._draw import SUFFIXES, draw
from flashfs.replay.plots._figures import KINDS, available
from flashfs.replay.plots._picture import Picture, figure
from flashfs.replay.plots._shapes import Figure, Panel, Series

__all__ = ["KINDS", "SUFFIXES", "Figure", "Panel", "Picture", "Series", "available", "draw", "figure"]
