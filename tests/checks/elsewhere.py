"""A number that a block in another file changes."""

CALLS = 0
