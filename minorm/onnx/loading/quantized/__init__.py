"""Files of integers: nodes that run on bytes in inference, and integer weights that train as floats."""
