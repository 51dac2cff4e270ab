"""Varies a lab: other constants, layouts and planted bugs each year, so that last year's solution does not pass.

    choices            the table of values that vary, and the values of one variant
    rendering          the text of a lab in a variant: the notebook, the Python file and the solution
    default_arguments  the arguments of a call, if a variant has other defaults

A lab declares its table beside its checks, in minorm/labs/checks/variants/; the plain lab, which `labs start` writes
without a seed, has the first value of each row.
"""
