"""Run cases on other runtimes, if installed, for `minorm conform`; each runtime has a file with `answer(case)`.

A runtime that reads ONNX gets a file (files.py), with scale, bias and statistics as weights. For any other framework,
the adapter calls the framework's layers; it translates the framework's conventions, but not its arithmetic. An adapter
refuses a case that its runtime cannot express.
"""
