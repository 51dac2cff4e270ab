"""Varies a lab: other constants, layouts and planted bugs each year, so that last year's solution does not pass.

    choices            the table of values that vary, and the values of one variant
    rendering          the text of a lab in a variant: the notebook, the Python file and the solution
    default_arguments  the arguments of a call, if a variant has other defaults

A lab's table is beside its checks, in minorm/labs/checks/variants/. The plain lab has the first value of each row;
`labs start` writes the plain lab if no seed is given.
"""
