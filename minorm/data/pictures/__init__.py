"""Reads pictures in files: their headers and their pixels."""
