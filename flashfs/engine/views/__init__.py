"""What tools ask of a device: the state of each block, and whether all structures agree."""
