"""Test which runtimes compute normalizations as ONNX defines them: run cases, and compare with a float64 formula."""
