"""How large a chip is of which no one said it: over-provisioning, defaults."""
