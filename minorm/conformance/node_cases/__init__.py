"""Write test cases of normalizations that the onnx package lacks, in the two forms of test cases that onnx has.

    python -m minorm.conformance.node_cases DIR

makes DIR/node/test_NAME and DIR/simple/test_NAME (model.onnx and test_data_set_0, as onnx's backend tests read them),
DIR/case with the Python sources of the cases, and a README. The sources are in sources/: like files of
onnx/backend/test/case, they import only onnx and NumPy, and they compute the expected outputs in float64. collecting.py
runs the sources.
"""
