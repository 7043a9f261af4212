"""Mutation testing of the compiled modules: docs/coverage.md has the method and the results."""
