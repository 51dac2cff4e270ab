"""What others make of a file: onnx's checker and onnxruntime in a process of their own; and what is odd about it."""
