"""Ask other runtimes, if they are installed, for `minorm conform`: each has a file with a function `answer(case)`.

A runtime that reads ONNX gets a file (files.py), with scale, bias and statistics as weights. For other frameworks, the
adapter calls their layers and translates their conventions, but not their arithmetic. An adapter refuses a case that
its runtime cannot express.
"""
