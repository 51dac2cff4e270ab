"""Runtimes that `minorm conform` asks where they are installed: a file each, with `answer(case)`.

Those that read ONNX get a file (files.py), with scale, bias and statistics in it as weights. Of the others their own
layers are called, and their conventions translated; their arithmetic is not. What a runtime cannot say, it refuses.
"""
