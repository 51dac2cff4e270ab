"""Check a file with onnx's checker and onnxruntime, which run in a separate process, and find the file's oddities."""
