"""How large a chip is where that was not given: over-provisioning, defaults."""
