"""A page map in DRAM, a bitmap of what lives, streams over the dies, greedy cleaning: for what a scheme leaves."""
