"""The defaults where a scheme names no part: page map and bitmap in DRAM, streams over the dies, greedy cleaning."""
