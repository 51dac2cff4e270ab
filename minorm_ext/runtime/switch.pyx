# cython: language_level=3, binding=False
"""Gives attributes other values inside a `with` block. Ctrl-C cannot come between its parts.

Python answers a signal between the instructions of a function written in Python. If a signal came before the first
instruction of `__exit__`, the attributes would keep the values of the block forever. These methods are compiled, so
no signal interrupts them.
"""


cdef class Switch:
    """with Switch(owner, {"name": value}): getattr(owner, "name") is value

    values  a dict by name; or a function without arguments that returns one, called each time the block is entered
    begun   True sets the values at once, and the first `with` then only restores the old ones

    One object may be entered again while it is open.
    """

    cdef object owner, values
    cdef list before
    cdef bint begun

    def __init__(self, owner, values, begun=False):
        self.owner, self.values, self.before, self.begun = owner, values, [], False
        if begun:
            self.__enter__()
            self.begun = True

    def __enter__(self):
        if self.begun:
            self.begun = False
            return self
        values = self.values() if callable(self.values) else self.values
        self.before.append({name: getattr(self.owner, name) for name in values})
        self.take(values)
        return self

    def __exit__(self, *error):
        self.take(self.before.pop())

    cdef int take(self, dict values) except -1:
        for name, value in values.items():
            setattr(self.owner, name, value)
        return 0
