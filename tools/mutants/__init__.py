"""Mutation testing of the compiled modules: docs/coverage.md says how it is done and what came of it."""
