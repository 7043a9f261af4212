"""The interfaces of the four parts of an FTL (mapping, validity, placement, cleaning) and what a part may ask of the
device."""
