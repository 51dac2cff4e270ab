"""Write test cases of normalizations that the onnx package lacks, in its two forms of test cases.

    python -m minorm.conformance.node_cases DIR

makes DIR/node/test_NAME and DIR/simple/test_NAME (model.onnx and test_data_set_0, as onnx's backend tests read them),
DIR/case with the Python sources they come from, and a README. sources/ has these sources: they import onnx and NumPy
alone, as files of onnx/backend/test/case do, and compute what is expected in float64. collecting.py runs them.
"""
