"""Ask other runtimes, if they are installed, for `minorm conform`: each has a file with a function `answer(case)`.

A runtime that reads ONNX gets a file (files.py), with scale, bias and statistics as weights. For the others, the
adapter calls their own layers and translates their conventions, but not their arithmetic. It refuses a case that the
runtime cannot express.
"""
