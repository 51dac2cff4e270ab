"""What must run where a student's module is, and no more: to build what it is given, call it, and hand on its answer.

A module a lab. Nothing here decides, counts or measures: the student's code is in the same process and may have put
something else in the place of any of it. Right answers are computed in minorm.labs.checks, which cannot be imported
there.
"""
