"""Follows how a student's function computes: the judge keeps the arrays, runs each operation and lists the operation.

    numpy_operations  the available operations
    follower          the judge's side: the numbers, and a list of all operations on them
    listed            the entries of that list
    verdicts          what a check reads from that list: functions, types, rows, work

The student's side is calling/followed_array.py: an array without numbers, which asks the judge for each operation. The
student's process never has the numbers. So the student's code cannot compute with them without the judge.
"""
