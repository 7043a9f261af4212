"""FTLs written as a class in Python; their answers are checked against what the engine knows."""
