"""Load quantized files: in inference, nodes compute with bytes; in training, integer weights are floats."""
