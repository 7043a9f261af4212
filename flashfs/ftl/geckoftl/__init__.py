"""GeckoFTL's line in the registry."""

SCHEME = ()
