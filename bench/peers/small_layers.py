"""Small modules: layers, norms, pools, images and attention (small_modules.py draws them)."""

import torch
from torch import nn
from torch.nn import functional as F

from small_modules import Call, kind, of, settled, weight

# Layers -----------------------------------------------------------------------------------------------------------------------------

def conv_of(dice, dims, channels):
    groups = dice.choice([g for g in (1, 1, 2, 3, channels) if channels % g == 0])
    outputs = groups * dice.size(1, 3)
    kernel = [dice.choice([1, 2, 3]) for _ in range(dims)]
    dilation = [dice.choice([1, 1, 2]) for _ in range(dims)]
    if dice.random() < 0.25:
        padding, stride = "same", 1
    else:
        stride = [dice.choice([1, 2, 3]) for _ in range(dims)]
        padding = [dice.choice([0, 1, 2]) for _ in range(dims)]
    mode = dice.choice(["zeros", "zeros", "zeros", "reflect", "replicate", "circular"]) if padding != "same" else "zeros"
    return (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dims - 1](channels, outputs, tuple(kernel), stride if stride == 1 else tuple(stride),
                                                       padding if padding == "same" else tuple(padding), tuple(dilation), groups,
                                                       dice.coin(), mode)


@kind(12)
def conv1d(dice):
    x = dice.sequence(length=dice.size(6, 12))
    return settled(conv_of(dice, 1, x.shape[1])), (x,)


@kind(24, int8=True)
def conv2d(dice):
    x = dice.image(low=6)
    return settled(conv_of(dice, 2, x.shape[1])), (x,)


@kind(6)
def conv3d(dice):
    x = torch.randn(dice.batch(), dice.size(1, 3), 6, 7, 6)
    return settled(conv_of(dice, 3, x.shape[1])), (x,)


def transposed(dice, dims, channels):
    groups = dice.choice([g for g in (1, 1, 1, 2) if channels % g == 0])
    stride = [dice.choice([1, 2, 3]) for _ in range(dims)]
    dilation = [dice.choice([1, 1, 1, 2]) for _ in range(dims)]
    kernel = [dice.choice([1, 2, 3, 4]) for _ in range(dims)]
    padding = [dice.randint(0, min(1, d * (k - 1))) for k, d in zip(kernel, dilation)]
    extra = [dice.randint(0, max(s, d) - 1) if dice.random() < 0.3 else 0 for s, d in zip(stride, dilation)]
    return (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)[dims - 1](
        channels, groups * dice.size(1, 3), tuple(kernel), tuple(stride), tuple(padding), tuple(extra), groups, dice.coin(), tuple(dilation))


@kind(6)
def conv_transpose1d(dice):
    x = dice.sequence()
    return settled(transposed(dice, 1, x.shape[1])), (x,)


@kind(12, int8=True)
def conv_transpose2d(dice):
    x = dice.image(low=3, high=6)
    return settled(transposed(dice, 2, x.shape[1])), (x,)


@kind(3)
def conv_transpose3d(dice):
    x = torch.randn(dice.batch(), 2, 3, 4, 3)
    return settled(transposed(dice, 3, 2)), (x,)


@kind(8)
def linear(dice):
    x = dice.any()
    return settled(nn.Linear(x.shape[-1], dice.size(), dice.coin())), (x,)


@kind(3)
def bilinear(dice):
    x, y = torch.randn(2, 5), torch.randn(2, 4)
    return nn.Bilinear(5, 4, dice.size(), dice.coin()), (x, y)


PRODUCTS = [  # of [batch, n, k] and [k, m]
    lambda n, m, k, batch: of(lambda m_, x: x @ m_.w, torch.randn(batch, n, k), w=weight(k, m)),
    lambda n, m, k, batch: of(torch.matmul, torch.randn(batch, n, k), torch.randn(batch, k, m)),
    lambda n, m, k, batch: of(torch.bmm, torch.randn(batch, n, k), torch.randn(batch, k, m)),
    lambda n, m, k, batch: of(lambda m_, x: torch.addmm(m_.b, x, m_.w, beta=0.5, alpha=2), torch.randn(batch, k), w=weight(k, m),
                              b=weight(m)),
    lambda n, m, k, batch: of(lambda a, x, y: torch.baddbmm(a, x, y, beta=2, alpha=0.5), torch.randn(batch, 1, m),
                              torch.randn(batch, n, k), torch.randn(batch, k, m)),
    lambda n, m, k, batch: of(lambda x: torch.einsum("bik,bjk->bij", x, x), torch.randn(batch, n, k)),
    lambda n, m, k, batch: of(lambda m_, x: torch.matmul(m_.w, x), torch.randn(batch, k, n), w=weight(m, k)),
    lambda n, m, k, batch: of(lambda m_, x: torch.matmul(x, m_.w), torch.randn(batch, 2, n, k), w=weight(k, m)),
]


def product_sizes(dice):
    """n, m, k and batch."""
    return dice.size(), dice.size(), dice.size(), dice.batch()


@kind(6)
def products(dice):
    sizes = product_sizes(dice)
    return dice.choice(PRODUCTS)(*sizes)


for index, product_function in enumerate(PRODUCTS):  # each form of a product, at least once
    def product(dice, function=product_function):
        return function(*product_sizes(dice))
    product.__name__ = f"product{index}"
    kind(2)(product)


@kind(8)
def embedding(dice):
    ids = torch.randint(0, 7, (dice.batch(), dice.size()))
    table = nn.Embedding(7, dice.size(), padding_idx=dice.choice([None, 0]))
    return dice.choice([table, nn.Sequential(table, nn.Linear(table.embedding_dim, 3))]), (ids,)


@kind(6)
def recurrent(dice):
    cell = dice.choice([nn.LSTM, nn.GRU])
    layer = cell(4, dice.size(2, 5), dice.choice([1, 1, 2]), dice.coin(), True, 0.0, dice.coin())
    return Call(lambda m, x: m.layer(x)[0], layer=layer), (torch.randn(dice.batch(), dice.size(1, 6), 4),)


# Norms ------------------------------------------------------------------------------------------------------------------------------

@kind(6)
def batch_norm(dice):
    x = dice.choice([dice.sequence, dice.image, dice.volume, lambda: dice.rows(5)])()
    make = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}[x.dim()]
    return settled(make(x.shape[1], eps=dice.choice([1e-5, 1e-3]), affine=dice.coin())), (x,)


@kind(6)
def conv_norm_act(dice):
    x = dice.image(low=6)
    conv = conv_of(dice, 2, x.shape[1])
    act = dice.choice([nn.ReLU, nn.ReLU6, nn.Hardswish, nn.SiLU, nn.LeakyReLU, nn.Identity])()
    return settled(nn.Sequential(conv, nn.BatchNorm2d(conv.out_channels), act)), (x,)


@kind(5)
def layer_norm(dice):
    x = dice.any()
    last = dice.randint(1, x.dim() - 1)
    return settled(nn.LayerNorm(list(x.shape[-last:]), elementwise_affine=dice.coin(), eps=dice.choice([1e-5, 1e-3]))), (x,)


@kind(5)
def group_norm(dice):
    x = dice.choice([dice.sequence, dice.image])(channels=6)
    return settled(nn.GroupNorm(dice.choice([1, 2, 3, 6]), 6, affine=dice.coin())), (x,)


@kind(4)
def instance_norm(dice):
    x = dice.image(channels=3)
    return nn.InstanceNorm2d(3, affine=dice.coin()), (x,)


@kind(4)
def rms_norm(dice):
    x = dice.any()
    return nn.RMSNorm([x.shape[-1]], eps=1e-5, elementwise_affine=dice.coin()), (x,)


@kind(4)
def normalize(dice):
    x = dice.any()
    axis = dice.axis(x)
    return of(lambda x: F.normalize(x, p=2.0, dim=axis), x)


@kind(2)
def local_response_norm(dice):
    return nn.LocalResponseNorm(dice.choice([3, 5])), (dice.image(channels=5),)


# Pools ------------------------------------------------------------------------------------------------------------------------------

def window_of(dice, dims):
    kernel = [dice.choice([1, 2, 3, 4]) for _ in range(dims)]
    stride = [dice.choice([1, 2, 3]) for _ in range(dims)]
    padding = [dice.randint(0, k // 2) for k in kernel]
    return tuple(kernel), tuple(stride), tuple(padding)


@kind(24, int8=True)
def avg_pool2d(dice):
    kernel, stride, padding = window_of(dice, 2)
    divisor = dice.choice([None, None, None, 3])
    return nn.AvgPool2d(kernel, stride, padding, dice.coin(), dice.coin(), divisor), (dice.image(),)


@kind(20, int8=True)
def max_pool2d(dice):
    kernel, stride, padding = window_of(dice, 2)
    dilation = dice.choice([1, 1, 2])
    return nn.MaxPool2d(kernel, stride, padding, dilation, False, dice.coin()), (dice.image(low=7),)


@kind(8)
def avg_pool1d(dice):
    kernel, stride, padding = window_of(dice, 1)
    return nn.AvgPool1d(kernel, stride, padding, dice.coin(), dice.coin()), (dice.sequence(),)


@kind(8)
def max_pool1d(dice):
    kernel, stride, padding = window_of(dice, 1)
    return nn.MaxPool1d(kernel, stride, padding, dice.choice([1, 1, 2]), False, dice.coin()), (dice.sequence(length=9),)


@kind(5)
def avg_pool3d(dice):
    kernel, stride, padding = window_of(dice, 3)
    return nn.AvgPool3d(kernel, stride, padding, dice.coin(), dice.coin()), (dice.volume(),)


@kind(5)
def max_pool3d(dice):
    kernel, stride, padding = window_of(dice, 3)
    return nn.MaxPool3d(kernel, stride, padding, 1, False, dice.coin()), (dice.volume(),)


@kind(10, int8=True)
def adaptive_pools(dice):
    x = dice.image(low=5)
    sizes = (dice.choice([1, 1, 2, 3, x.shape[2]]), dice.choice([1, 1, 2, 4, x.shape[3]]))
    return dice.choice([nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d])(sizes), (x,)


@kind(3)
def adaptive_pool1d(dice):
    return dice.choice([nn.AdaptiveAvgPool1d, nn.AdaptiveMaxPool1d])(dice.choice([1, 2, 3])), (dice.sequence(),)


@kind(2)
def lp_pool(dice):
    return nn.LPPool2d(2.0, dice.choice([2, 3]), ceil_mode=dice.coin()), (dice.image(),)


# Images -----------------------------------------------------------------------------------------------------------------------------

@kind(30, int8=True)
def interpolate_factor(dice):
    mode = dice.choice(["nearest", "nearest", "bilinear", "bilinear", "nearest-exact", "bicubic"])
    factor = dice.choice([0.5, 1.5, 2.0, 2.5, 1.7, 0.7, 3.0, (1.5, 2.0), (0.6, 1.3), (2.0, 0.5), 1.0])
    options = {} if "nearest" in mode else {"align_corners": dice.coin()}
    if dice.random() < 0.2:
        options["recompute_scale_factor"] = True
    return of(lambda x: F.interpolate(x, scale_factor=factor, mode=mode, **options), dice.image())


@kind(20, int8=True)
def interpolate_size(dice):
    mode = dice.choice(["nearest", "nearest", "bilinear", "bilinear", "nearest-exact", "bicubic"])
    size = (dice.choice([1, 2, 5, 7, 12, 16]), dice.choice([1, 3, 4, 9, 13]))
    options = {} if "nearest" in mode else {"align_corners": dice.coin()}
    if mode in ("bilinear", "bicubic") and dice.random() < 0.15:
        options["antialias"] = True
    return of(lambda x: F.interpolate(x, size=size, mode=mode, **options), dice.image())


@kind(6)
def interpolate_others(dice):
    factor = dice.choice([2.0, 1.5, 0.5])
    if dice.coin():
        mode = dice.choice(["nearest", "linear"])
        return of(lambda x: F.interpolate(x, scale_factor=factor, mode=mode), dice.sequence())
    mode = dice.choice(["nearest", "trilinear"])
    return of(lambda x: F.interpolate(x, scale_factor=factor, mode=mode), dice.volume())


@kind(4)
def grid_sample(dice):
    mode, pad, corners = dice.choice(["bilinear", "nearest"]), dice.choice(["zeros", "border", "reflection"]), dice.coin()
    x = dice.image()
    grid = torch.rand(x.shape[0], dice.size(2, 5), dice.size(2, 5), 2) * 2.4 - 1.2
    return of(lambda x, g: F.grid_sample(x, g, mode, pad, corners), x, grid)


@kind(4, int8=True)
def pixel_shuffle(dice):
    return nn.PixelShuffle(2), (dice.image(channels=8),)


@kind(3)
def pixel_unshuffle(dice):
    return nn.PixelUnshuffle(2), (torch.randn(dice.batch(), dice.size(1, 3), 4, 6),)


@kind(3, int8=True)
def channel_shuffle(dice):
    return nn.ChannelShuffle(2), (dice.image(channels=6),)


@kind(16)
def pad(dice):
    x = dice.choice([dice.sequence, dice.image])()
    mode = dice.choice(["constant", "constant", "reflect", "replicate", "circular"])
    low = -1 if mode == "constant" and dice.random() < 0.3 else 0
    pads = [dice.randint(low, 2) for _ in range(2 * (x.dim() - 2))]
    value = dice.choice([0.0, 1.5])
    return of((lambda x: F.pad(x, pads, mode, value)) if mode == "constant" else (lambda x: F.pad(x, pads, mode)), x)


@kind(3)
def unfold(dice):
    return nn.Unfold((2, 3), dilation=dice.choice([1, 2]), padding=dice.choice([0, 1]), stride=dice.choice([1, 2])), (dice.image(),)


@kind(3)
def fold(dice):
    return nn.Fold((4, 5), (2, 2)), (torch.randn(dice.batch(), 8, 12),)


# Attention --------------------------------------------------------------------------------------------------------------------------

@kind(6)
def attention(dice):
    heads, length, size = dice.choice([1, 2]), dice.size(1, 6), dice.size(2, 5)
    batch, causal = dice.batch(), dice.coin()
    q, k, v = (torch.randn(batch, heads, length, size) for _ in range(3))
    if dice.coin():
        mask = torch.randn(length, length)
        return of(lambda m, q, k, v: F.scaled_dot_product_attention(q, k, v, m.mask), q, k, v, mask=mask)
    scale = dice.choice([None, 0.3])
    return of(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale), q, k, v)


@kind(3)
def multihead(dice):
    layer = nn.MultiheadAttention(4, dice.choice([1, 2]), batch_first=True)
    return Call(lambda m, x: m.layer(x, x, x, need_weights=False)[0], layer=layer), (torch.randn(dice.batch(), dice.size(1, 6), 4),)


@kind(2)
def encoder(dice):
    return nn.TransformerEncoderLayer(8, 2, 16, 0.0, dice.choice(["relu", "gelu"]), batch_first=True, norm_first=dice.coin()), (
        torch.randn(dice.batch(), dice.size(1, 6), 8),)
