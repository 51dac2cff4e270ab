"""Runs a submission in separate processes, sends it questions and receives its answers."""
