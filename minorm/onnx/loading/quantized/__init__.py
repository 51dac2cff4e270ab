"""Load quantized files: nodes run on bytes in inference, and integer weights train as floats."""
