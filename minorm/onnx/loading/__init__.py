"""Load an ONNX file as a Module that runs and trains."""
