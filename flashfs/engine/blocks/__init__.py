"""Blocks: states and streams, the OOB of a page, and the index of victims for cleaning."""
