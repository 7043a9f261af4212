"""Recovery from pages alone: fences in place of checkpoints."""
