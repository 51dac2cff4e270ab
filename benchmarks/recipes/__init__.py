"""Which settings a small data set trains best with: `python -m benchmarks.recipes`."""
