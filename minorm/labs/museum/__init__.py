"""Holds the museum of lab 15: faulty normalizations of published tools, each as a small program with the same fault.

    exhibits        the eight faulty programs
    plaques         who shipped each fault, in which version, and which page of docs/conformance/ describes it
    exhibit_errors  cases, and how far an exhibit is from the formula

A case is a dict of arguments: `exhibit("A")(**case)` runs exhibit A on a case, `off("A", case)` says how far the result
is from the formula, and `right("batch_norm", case)` gives the formula's results.
"""

from minorm.labs.museum.exhibit_errors import checked, distance, off, right
from minorm.labs.museum.exhibits import exhibit, quiet
from minorm.labs.museum.plaques import PLAQUES, Plaque, guide

__all__ = ["PLAQUES", "Plaque", "checked", "distance", "exhibit", "guide", "off", "quiet", "right"]
