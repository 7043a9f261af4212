"""The smallest FTL: where each page is, in a dict. The engine brings the rest of the SSD."""


class Minimal:
    """Page map in a dict."""

    def __init__(self, chip):
        self.ppa_of = {}

    def lookup(self, lpa):
        return self.ppa_of.get(lpa)

    def bind(self, lpa, ppa):
        self.ppa_of[lpa] = ppa

    def unbind(self, lpa):
        del self.ppa_of[lpa]
