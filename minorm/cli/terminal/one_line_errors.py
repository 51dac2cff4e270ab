"""Errors that the command line tells in one line: what they say is enough, and a traceback would hide it."""

EXPECTED = (ValueError, TypeError, ArithmeticError, OSError, ImportError, RuntimeError, MemoryError)


class UsageError(ValueError):
    """Options that do not go together, or one that is missing: exit code 2."""
