"""Switches for the kernels of libraries. Users set these switches under PyTorch's names in minorm/backends.

matmul_tf32      True allows TF32 for float32 products of matrices: 10 mantissa bits of each number instead of 23
conv_tf32        True allows TF32 for float32 convolutions, by cuDNN or by products of matrices
cudnn            True lets cuDNN compute the operations that it supports, if it is installed
cudnn_benchmark  True makes minorm time cuDNN's plans for a convolution and keep the fastest
"""

matmul_tf32, conv_tf32, cudnn, cudnn_benchmark = False, False, True, False
