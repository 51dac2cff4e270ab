"""The book of normalization: loops, equation, running statistics, forward and backward."""
