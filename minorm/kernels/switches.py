"""Switches for the kernels of libraries. Users set them by PyTorch's names in minorm/backends.

matmul_tf32      True allows TF32 for float32 products of matrices: 10 bits of each number instead of 23
conv_tf32        True allows the same for convolutions, by cuDNN or by products of matrices
cudnn            True lets cuDNN compute the operations that it supports, if it is installed
cudnn_benchmark  True times cuDNN's plans for a convolution, and keeps the fastest
"""

matmul_tf32, conv_tf32, cudnn, cudnn_benchmark = False, False, True, False
