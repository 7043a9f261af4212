"""What tools show of a device: the state of each block, and whether all structures are consistent."""
