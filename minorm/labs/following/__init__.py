"""Sees how a student's function computes: its arrays stay with the judge, who does each operation and writes it down.

    numpy_operations  the operations that there are
    follower          the judge's side: the numbers, and a list of all that was done with them
    listed            what that list holds
    verdicts          what a check reads from that list: functions, types, rows, work

The student's side is calling/followed_array.py: an array without numbers, which asks the judge for each operation. The
student's process never has the numbers, so it can neither hide what it does with them nor do it elsewhere.
"""
