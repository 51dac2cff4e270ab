"""Check a file with onnx's checker and with onnxruntime, both in a separate process, and find the file's oddities."""
