"""Blocks of all dies taken together, and cleaning that leaves metadata alone."""
