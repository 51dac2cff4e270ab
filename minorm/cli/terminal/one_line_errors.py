"""Lists the errors that the command line prints in one line, because their messages are enough without a traceback."""

EXPECTED = (ValueError, TypeError, ArithmeticError, OSError, ImportError, RuntimeError, MemoryError)


class UsageError(ValueError):
    """An option is missing, or options contradict each other. The exit code is 2."""
