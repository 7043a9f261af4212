"""The interfaces of the four parts of an FTL (mapping, validity, placement, cleaning) and the engine as they see it."""
