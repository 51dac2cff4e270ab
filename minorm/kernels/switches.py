"""What a user may set about kernels of libraries; minorm/backends gives it PyTorch's names.

matmul_tf32      float32 products of matrices may be computed in TF32: 10 bits of each number instead of 23
conv_tf32        the same for convolutions, by cuDNN or by products of matrices
cudnn            cuDNN does what it can, where it is installed
cudnn_benchmark  its plans for a convolution are tried out, and the fastest is kept
"""

matmul_tf32, conv_tf32, cudnn, cudnn_benchmark = False, False, True, False
