"""The switches for kernels of libraries, which users set by PyTorch's names in minorm/backends.

matmul_tf32      float32 products of matrices may be computed in TF32: 10 bits of each number instead of 23
conv_tf32        the same for convolutions, by cuDNN or by products of matrices
cudnn            cuDNN computes the operations it supports, if it is installed
cudnn_benchmark  cuDNN's plans for a convolution are timed, and the fastest is kept
"""

matmul_tf32, conv_tf32, cudnn, cudnn_benchmark = False, False, True, False
