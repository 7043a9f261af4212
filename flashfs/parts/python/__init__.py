"""An FTL that is a class in Python, held against what the engine knows."""
