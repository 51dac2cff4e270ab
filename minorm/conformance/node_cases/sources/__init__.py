"""Make test cases in the style of onnx/backend/test/case/node and case/model; collecting.py runs these sources."""
