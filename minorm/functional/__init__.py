"""The functions that users call. Each function checks its arguments, decides the axes and applies one operation.

import minorm.functional as F
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minorm.functional.activation import (
    elu,
    gelu,
    hardsigmoid,
    hardswish,
    leaky_relu,
    log_softmax,
    relu,
    relu6,
    sigmoid,
    silu,
    softmax,
    softplus,
    tanh,
)
from minorm.functional.convolution import (
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
)
from minorm.functional.dropout import (
    dropout,
)
from minorm.functional.linear import (
    linear,
)
from minorm.functional.losses.loss import (
    binary_cross_entropy_with_logits,
    cross_entropy,
    l1_loss,
    mse_loss,
    nll_loss,
    smooth_l1_loss,
)
from minorm.functional.norm import (
    batch_norm,
    group_norm,
    instance_norm,
    layer_norm,
    mean_variance_norm,
    normalization,
    rms_norm,
)
from minorm.functional.norm.response import local_response_norm, normalize
from minorm.functional.pooling import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    max_pool1d,
    max_pool2d,
    max_pool3d,
)
from minorm.support import lazy

# Names that are loaded on first use, by the module that defines them.
LATER = {
    "attention": "scaled_dot_product_attention",
    "losses.ctc": "ctc_loss",
    "distances": "cosine_similarity pairwise_distance pdist",
    "dropout": "dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout stochastic_depth",
    "fake_quantization": "fake_quantize_per_channel_affine fake_quantize_per_tensor_affine",
    "norm.filter_response": "filter_response_norm",
    "norm.ghost": "ghost_batch_norm",
    "losses.imbalanced": "dice_loss focal_loss sigmoid_focal_loss",
    "losses.likelihoods": "binary_cross_entropy gaussian_nll_loss huber_loss kl_div poisson_nll_loss",
    "linear": "bilinear",
    "lookup": "embedding embedding_bag one_hot",
    "losses.margins": (
        "cosine_embedding_loss hinge_embedding_loss margin_ranking_loss multi_margin_loss multilabel_margin_loss "
        "multilabel_soft_margin_loss soft_margin_loss triplet_margin_loss triplet_margin_with_distance_loss"
    ),
    "padding": "pad",
    "piecewise": "hardshrink hardtanh prelu rrelu softshrink threshold",
    "rearranging": "channel_shuffle fold native_channel_shuffle pixel_shuffle pixel_unshuffle unfold",
    "norm.renormalization": "batch_renorm",
    "resizing": "interpolate upsample upsample_bilinear upsample_nearest",
    "sampling": "affine_grid grid_sample",
    "smooth": "celu glu gumbel_softmax logsigmoid mish selu softmin softsign tanhshrink",
    "volumes": (
        "adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d lp_pool1d lp_pool2d lp_pool3d "
        "max_unpool1d max_unpool2d max_unpool3d"
    ),
}
__getattr__, __dir__ = lazy.names(__name__, LATER)

if TYPE_CHECKING:
    from minorm.functional.attention import scaled_dot_product_attention
    from minorm.functional.distances import cosine_similarity, pairwise_distance, pdist
    from minorm.functional.dropout import (
        alpha_dropout,
        dropout1d,
        dropout2d,
        dropout3d,
        feature_alpha_dropout,
        stochastic_depth,
    )
    from minorm.functional.fake_quantization import fake_quantize_per_channel_affine, fake_quantize_per_tensor_affine
    from minorm.functional.linear import bilinear
    from minorm.functional.lookup import embedding, embedding_bag, one_hot
    from minorm.functional.losses.ctc import ctc_loss
    from minorm.functional.losses.imbalanced import dice_loss, focal_loss, sigmoid_focal_loss
    from minorm.functional.losses.likelihoods import (
        binary_cross_entropy,
        gaussian_nll_loss,
        huber_loss,
        kl_div,
        poisson_nll_loss,
    )
    from minorm.functional.losses.margins import (
        cosine_embedding_loss,
        hinge_embedding_loss,
        margin_ranking_loss,
        multi_margin_loss,
        multilabel_margin_loss,
        multilabel_soft_margin_loss,
        soft_margin_loss,
        triplet_margin_loss,
        triplet_margin_with_distance_loss,
    )
    from minorm.functional.norm.filter_response import filter_response_norm
    from minorm.functional.norm.ghost import ghost_batch_norm
    from minorm.functional.norm.renormalization import batch_renorm
    from minorm.functional.padding import pad
    from minorm.functional.piecewise import hardshrink, hardtanh, prelu, rrelu, softshrink, threshold
    from minorm.functional.rearranging import (
        channel_shuffle,
        fold,
        native_channel_shuffle,
        pixel_shuffle,
        pixel_unshuffle,
        unfold,
    )
    from minorm.functional.resizing import interpolate, upsample, upsample_bilinear, upsample_nearest
    from minorm.functional.sampling import affine_grid, grid_sample
    from minorm.functional.smooth import (
        celu,
        glu,
        gumbel_softmax,
        logsigmoid,
        mish,
        selu,
        softmin,
        softsign,
        tanhshrink,
    )
    from minorm.functional.volumes import (
        adaptive_avg_pool3d,
        adaptive_max_pool1d,
        adaptive_max_pool2d,
        adaptive_max_pool3d,
        lp_pool1d,
        lp_pool2d,
        lp_pool3d,
        max_unpool1d,
        max_unpool2d,
        max_unpool3d,
    )
