"""Reads picture files: their headers and their pixels."""
