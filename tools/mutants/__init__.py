"""Mutation testing of the compiled modules: docs/mutants.md has the method and the results."""
