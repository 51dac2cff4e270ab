"""Lists the errors that the command line prints in one line: their message is enough without a traceback."""

EXPECTED = (ValueError, TypeError, ArithmeticError, OSError, ImportError, RuntimeError, MemoryError)


class UsageError(ValueError):
    """An option is missing, or options do not go together: exit code 2."""
