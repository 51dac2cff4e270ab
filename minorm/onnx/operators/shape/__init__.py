"""Rules of operators that rearrange, select or create elements."""
