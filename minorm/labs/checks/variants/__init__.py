"""Holds the table of each lab that varies from year to year, and its arguments and answers in a variant."""
