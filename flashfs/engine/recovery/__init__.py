"""Recovery of acknowledged data: scans the pages written since the checkpoint and decides which of them count."""
