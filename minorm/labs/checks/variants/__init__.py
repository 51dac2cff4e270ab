"""Holds the table of each lab that varies from year to year, and converts arguments and answers to a variant."""
