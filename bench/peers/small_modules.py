"""Small modules for conformance.py: each operator and its options, drawn from a fixed seed.

A kind is a function of dice that returns a module and its inputs. `kinds()` gives all of them by name; a new one is drawn by being
written here with @kind. Sizes are small and odd ones, ones and batches of 1 among them.
"""

import random
import zlib

import torch
from torch import nn
from torch.nn import functional as F

KINDS = {}


def kind(draws=4, int8=False):
    """Registers a kind: how many modules of it are drawn, and whether it stands between two layers in integers, too."""
    def register(make):
        KINDS[make.__name__] = (make, draws, int8)
        return make
    return register


class Dice(random.Random):
    """Sizes and options."""

    def size(self, low=1, high=9):
        return self.randint(low, high)

    def batch(self):
        return self.choice([1, 1, 2, 3])

    def coin(self):
        return self.random() < 0.5

    def rows(self, *sizes):
        return torch.randn(self.batch(), *(sizes or (self.size(),)))

    def sequence(self, channels=None, length=None):
        return torch.randn(self.batch(), channels or self.size(2, 6), length or self.size(4, 11))

    def image(self, channels=None, low=5, high=11):
        return torch.randn(self.batch(), channels or self.size(1, 6), self.size(low, high), self.size(low, high))

    def volume(self, channels=None):
        return torch.randn(self.batch(), channels or self.size(1, 3), self.size(4, 6), self.size(4, 7), self.size(4, 6))

    def any(self):
        """Numbers of 2 to 4 dimensions."""
        return self.choice([self.rows, self.sequence, self.image])()

    def axis(self, x, first=1):
        """A dimension other than the batch, from the front or the back."""
        axis = self.randrange(first, x.dim())
        return axis - x.dim() if self.coin() else axis

    def axes(self, x):
        found = [axis for axis in range(1, x.dim()) if self.coin()] or [x.dim() - 1]
        return [axis - x.dim() if self.coin() else axis for axis in found]


class Call(nn.Module):
    """A function of the inputs and of layers by name."""

    def __init__(self, function, **parts):
        super().__init__()
        self.function = function
        for name, part in parts.items():
            if isinstance(part, nn.Module):
                self.add_module(name, part)
            elif isinstance(part, nn.Parameter):
                self.register_parameter(name, part)
            else:
                self.register_buffer(name, part)

    def forward(self, *inputs):
        return self.function(self, *inputs)


def weight(*sizes):
    return nn.Parameter(torch.randn(*sizes))


def of(function, *inputs, **parts):
    """A module of a function that does not ask for parts."""
    return (Call(lambda m, *xs: function(*xs)) if not parts else Call(function, **parts)), inputs


def settled(module):
    """Statistics of batch norms as after training."""
    for one in module.modules():
        if isinstance(one, (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)):
            one.running_mean.normal_()
            one.running_var.uniform_(0.5, 1.5)
    for parameter in module.parameters():
        if parameter.dim() == 1:
            parameter.data.add_(torch.randn_like(parameter) * 0.2)
    return module


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


@kind(6)
def products(dice):
    n, m, k, batch = dice.size(), dice.size(), dice.size(), dice.batch()
    return dice.choice([
        lambda: of(lambda m_, x: x @ m_.w, torch.randn(batch, n, k), w=weight(k, m)),
        lambda: of(torch.matmul, torch.randn(batch, n, k), torch.randn(batch, k, m)),
        lambda: of(torch.bmm, torch.randn(batch, n, k), torch.randn(batch, k, m)),
        lambda: of(lambda m_, x: torch.addmm(m_.b, x, m_.w, beta=0.5, alpha=2), torch.randn(batch, k), w=weight(k, m), b=weight(m)),
        lambda: of(lambda a, x, y: torch.baddbmm(a, x, y, beta=2, alpha=0.5), torch.randn(batch, 1, m), torch.randn(batch, n, k),
                   torch.randn(batch, k, m)),
        lambda: of(lambda x: torch.einsum("bik,bjk->bij", x, x), torch.randn(batch, n, k)),
        lambda: of(lambda m_, x: torch.matmul(m_.w, x), torch.randn(batch, k, n), w=weight(m, k)),
        lambda: of(lambda m_, x: torch.matmul(x, m_.w), torch.randn(batch, 2, n, k), w=weight(k, m)),
    ])()


for index in range(8):  # each form of a product, at least once
    def one(dice, index=index):
        dice.choice = lambda forms: forms[index] if callable(forms[0]) else random.Random.choice(dice, forms)
        return products(dice)
    one.__name__ = f"product{index}"
    kind(2)(one)


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
    return of(lambda x: F.normalize(x, p=2.0, dim=axis), x) if (axis := dice.axis(x)) else None


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
    return of((lambda x: F.pad(x, pads, mode, dice_value)) if mode == "constant" else (lambda x: F.pad(x, pads, mode)), x) \
        if (dice_value := dice.choice([0.0, 1.5])) is not None else None


@kind(3)
def unfold(dice):
    return nn.Unfold((2, 3), dilation=dice.choice([1, 2]), padding=dice.choice([0, 1]), stride=dice.choice([1, 2])), (dice.image(),)


@kind(3)
def fold(dice):
    return nn.Fold((4, 5), (2, 2)), (torch.randn(dice.batch(), 8, 12),)


# Elementwise ------------------------------------------------------------------------------------------------------------------------

ACTIVATIONS = {
    "relu": F.relu, "relu6": F.relu6, "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu,
    "sigmoid": torch.sigmoid, "tanh": torch.tanh, "elu": lambda x: F.elu(x, 0.7), "selu": F.selu, "celu": lambda x: F.celu(x, 0.7),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2), "hardswish": F.hardswish, "hardsigmoid": F.hardsigmoid, "mish": F.mish,
    "hardtanh": lambda x: F.hardtanh(x, -0.5, 0.7), "softplus": lambda x: F.softplus(x, 2.0, 1.0), "softsign": F.softsign,
    "logsigmoid": F.logsigmoid, "tanhshrink": F.tanhshrink, "softshrink": F.softshrink, "hardshrink": F.hardshrink,
    "threshold": lambda x: F.threshold(x, 0.1, 20), "glu": lambda x: F.glu(torch.cat([x, x + 1], 1), 1),
    "softplus_default": F.softplus,
}
POINTWISE = {
    "abs": torch.abs, "neg": torch.neg, "sign": torch.sign, "square": torch.square, "sqrt": lambda x: torch.sqrt(x.abs()),
    "rsqrt": lambda x: torch.rsqrt(x.abs() + 1), "exp": torch.exp, "expm1": torch.expm1, "log": lambda x: torch.log(x.abs() + 0.1),
    "log1p": lambda x: torch.log1p(x.abs()), "log2": lambda x: torch.log2(x.abs() + 1), "log10": lambda x: torch.log10(x.abs() + 1),
    "sin": torch.sin, "cos": torch.cos, "tan": torch.tan, "asin": lambda x: torch.asin(x * 0.1), "acos": lambda x: torch.acos(x * 0.1),
    "atan": torch.atan, "sinh": torch.sinh, "cosh": torch.cosh, "asinh": torch.asinh, "acosh": lambda x: torch.acosh(x.abs() + 1.5),
    "atanh": lambda x: torch.atanh(x * 0.1), "erf": torch.erf, "floor": torch.floor, "ceil": torch.ceil,
    "round": lambda x: torch.round(x * 2 + 0.5), "round_decimals": lambda x: torch.round(x, decimals=2),
    "round_tens": lambda x: torch.round(x * 100, decimals=-1), "trunc": torch.trunc,
    "frac": torch.frac, "reciprocal": lambda x: torch.reciprocal(x.abs() + 1), "clamp_min": lambda x: torch.clamp(x, min=-0.2),
    "clamp_max": lambda x: torch.clamp(x, max=0.3), "clamp": lambda x: torch.clamp(x, -0.5, 0.5), "pow2": lambda x: x ** 2,
    "pow3": lambda x: x ** 3, "pow_half": lambda x: x.abs() ** 0.5, "pow_minus": lambda x: (x.abs() + 1) ** -1.5,
    "rpow": lambda x: 2.0 ** x, "rsub": lambda x: 1.5 - x, "rdiv": lambda x: 2 / (x.abs() + 1), "add_alpha": lambda x: torch.add(x, 0.5, alpha=2),
    "div_floor": lambda x: torch.div(x, 0.7, rounding_mode="floor"), "div_trunc": lambda x: torch.div(x, 0.7, rounding_mode="trunc"),
    "remainder": lambda x: torch.remainder(x, 0.7), "remainder_neg": lambda x: torch.remainder(x, -0.7), "fmod": lambda x: torch.fmod(x, 0.7),
    "isnan": lambda x: torch.isnan(x.log()).float(), "isinf": lambda x: torch.isinf(x.round().reciprocal()).float(),
    "logical": lambda x: ((x > -1) & (x < 1) | ~(x > 0)).float(), "where": lambda x: torch.where(x > 0, x, x * 0.5),
    "where_scalar": lambda x: torch.where(x > 0, x, 0.0), "masked_fill": lambda x: x.masked_fill(x < 0, -3.0),
    "nan_to_num": torch.nan_to_num, "addcmul": lambda x: torch.addcmul(x, x, x, value=0.5), "lerp": lambda x: torch.lerp(x, x * 2, 0.3),
    "addcdiv": lambda x: torch.addcdiv(x, x, x.abs() + 1, value=0.5), "logit": lambda x: torch.logit(torch.sigmoid(x), 1e-6),
    "xlogy": lambda x: torch.special.xlogy(x.abs(), x.abs() + 1), "to_int": lambda x: (x * 3).to(torch.int64).float(),
    "to_bool": lambda x: (x * 3).round().bool().float(), "int_div": lambda x: torch.div((x * 5).int(), 2, rounding_mode="floor").float(),
    "exp2": torch.exp2, "sinc": lambda x: torch.sinc(x), "heaviside": lambda x: (x >= 0).to(x.dtype) * x, "erfc": torch.erfc,
}
COMPARISONS = {"eq": torch.eq, "ne": torch.ne, "lt": torch.lt, "le": torch.le, "gt": torch.gt, "ge": torch.ge}
PAIRS = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": lambda x, y: x / (y.abs() + 0.5), "maximum": torch.maximum,
    "minimum": torch.minimum, "pow": lambda x, y: (x.abs() + 0.5) ** y, "atan2": torch.atan2,
    "remainder": lambda x, y: torch.remainder(x, y.abs() + 0.5), "fmod": lambda x, y: torch.fmod(x, y.abs() + 0.5),
    "add_alpha": lambda x, y: torch.add(x, y, alpha=-2), "sub_alpha": lambda x, y: torch.sub(x, y, alpha=0.5),
    "div_floor": lambda x, y: torch.div(x, y.abs() + 0.5, rounding_mode="floor"), "hypot": lambda x, y: torch.sqrt(x * x + y * y + 1),
    "where": lambda x, y: torch.where(x > y, x, y * 2), "logaddexp": torch.logaddexp, "copysign": lambda x, y: x.abs() * y.sign(),
    **{name: (lambda x, y, compare=compare: compare(x, y).float()) for name, compare in COMPARISONS.items()},
}


def each_of(table, prefix, draws, int8=()):
    for name, function in table.items():
        def make(dice, function=function):
            return of(function, dice.any())
        make.__name__ = f"{prefix}_{name}"
        kind(draws, name in int8)(make)


each_of(ACTIVATIONS, "act", 2, {"relu", "relu6", "sigmoid", "tanh", "hardswish", "gelu", "silu", "leaky_relu", "hardsigmoid", "hardtanh",
                                "elu"})
each_of(POINTWISE, "map", 1)


def broadcast(dice):
    """Two operands that LibTorch brings to one size."""
    x = dice.any()
    form = dice.randrange(3)
    if form == 0:
        return x, torch.randn(x.shape)
    if form == 1:
        return x, torch.randn(x.shape[0], *[1 if dice.coin() else n for n in x.shape[1:]])
    y = torch.randn(x.shape[0], *[1] * (x.dim() - 1))
    return (x, y) if dice.coin() else (y, x)


for pair_name, pair_function in PAIRS.items():
    def pair(dice, function=pair_function):
        return of(function, *broadcast(dice))
    pair.__name__ = f"pair_{pair_name}"
    kind(2)(pair)

for pair_name in ("add", "sub", "mul", "div", "maximum", "pow"):
    def with_weight(dice, function=PAIRS[pair_name]):
        x = dice.any()
        sizes = x.shape[dice.randint(1, x.dim() - 1):] if x.dim() > 1 else x.shape
        first = dice.coin()
        return of(lambda m, x: function(m.w, x) if first else function(x, m.w), x, w=weight(*sizes))
    with_weight.__name__ = f"weight_{pair_name}"
    kind(2)(with_weight)


@kind(3)
def prelu(dice):
    x = dice.choice([dice.image, dice.sequence])()
    return nn.PReLU(dice.choice([1, x.shape[1]])), (x,)


@kind(6)
def softmaxes(dice):
    x = dice.any()
    axis, function = dice.axis(x), dice.choice([torch.softmax, F.log_softmax, F.softmin])
    return of(lambda x: function(x, dim=axis), x)


# Reductions -------------------------------------------------------------------------------------------------------------------------

REDUCTIONS = {
    "sum": torch.sum, "mean": torch.mean, "amax": torch.amax, "amin": torch.amin, "logsumexp": torch.logsumexp,
    "var": lambda x, dim, keepdim: torch.var(x, dim, correction=1, keepdim=keepdim),
    "var0": lambda x, dim, keepdim: torch.var(x, dim, correction=0, keepdim=keepdim),
    "std0": lambda x, dim, keepdim: torch.std(x, dim, correction=0, keepdim=keepdim),
    "norm2": lambda x, dim, keepdim: torch.linalg.vector_norm(x, 2, dim, keepdim),
    "norm1": lambda x, dim, keepdim: torch.linalg.vector_norm(x, 1, dim, keepdim),
    "norminf": lambda x, dim, keepdim: torch.linalg.vector_norm(x, float("inf"), dim, keepdim),
}
ONE_AXIS = {
    "prod": torch.prod, "argmax": torch.argmax, "argmin": torch.argmin, "max_dim": lambda x, dim, keepdim: torch.max(x, dim, keepdim)[0],
    "min_dim": lambda x, dim, keepdim: torch.min(x, dim, keepdim)[0],
    "max_both": lambda x, dim, keepdim: torch.max(x, dim, keepdim),
    "any": lambda x, dim, keepdim: torch.any(x > 1, dim, keepdim).float(),
    "all": lambda x, dim, keepdim: torch.all(x > -1, dim, keepdim).float(),
}
for reduction_name, reduction_function in {**REDUCTIONS, **ONE_AXIS}.items():
    def reduction(dice, function=reduction_function, many=reduction_name in REDUCTIONS):
        x = dice.any()
        axes = dice.axes(x) if many else dice.axis(x)
        keep = dice.coin()
        return of(lambda x: function(x, dim=axes, keepdim=keep), x)
    reduction.__name__ = f"reduce_{reduction_name}"
    kind(3)(reduction)


@kind(4)
def cumulative(dice):
    x = dice.any()
    axis = dice.axis(x)
    return dice.choice([lambda: of(lambda x: torch.cumsum(x, axis), x), lambda: of(lambda x: torch.cumsum(x.flip(axis), axis).flip(axis), x),
                        lambda: of(lambda x: torch.cumprod(x, axis), x)])()


@kind(6)
def sorting(dice):
    x = dice.any()
    axis, largest = dice.axis(x), dice.coin()
    k = dice.randint(1, x.shape[axis])
    return dice.choice([lambda: of(lambda x: torch.topk(x, k, axis, largest), x),
                        lambda: of(lambda x: torch.sort(x, axis, largest)[0], x),
                        lambda: of(lambda x: torch.argsort(x, axis, largest), x)])()


# Shapes -----------------------------------------------------------------------------------------------------------------------------

@kind(12)
def slicing(dice):
    x = dice.image(low=6)
    begin, end, step = dice.choice([(0, 3, 1), (1, None, 1), (-3, None, 1), (0, -1, 1), (None, None, 2), (1, 5, 3), (-5, -2, 1), (2, 100, 1)])
    axis = dice.choice([1, 2, 3])
    index = [slice(None)] * axis + [slice(begin, end, step)]
    return of(lambda x: x[tuple(index)], x)


@kind(8)
def selecting(dice):
    x = dice.any()
    axis = dice.axis(x)
    index = dice.choice([0, -1, x.shape[axis] - 1])
    return dice.choice([
        lambda: of(lambda x: x.select(axis, index), x),
        lambda: of(lambda x: torch.narrow(x, axis, 0, max(1, x.shape[axis] - 1)), x),
        lambda: of(lambda m, x: torch.index_select(x, axis, m.i), x, i=torch.tensor([0, x.shape[axis] - 1, 0])),
        lambda: of(lambda m, x: x[:, m.i], x, i=torch.tensor([0, -1])),
        lambda: of(lambda m, x: torch.gather(x, axis, m.i.expand(x.shape[0], *m.i.shape[1:])), x,
                   i=torch.randint(0, x.shape[axis], (1, *x.shape[1:]))),
        lambda: of(lambda x: x.unbind(axis)[-1], x),
        lambda: of(lambda x: x[..., -1], x),
        lambda: of(lambda x: x[..., None, :].squeeze(-2), x),
    ])()


@kind(8)
def indices_at_run_time(dice):
    x = dice.sequence(length=6)
    ids = torch.randint(-6, 6, (x.shape[0], 2)) if dice.coin() else torch.randint(0, 6, (x.shape[0], 2))
    return dice.choice([
        lambda: of(lambda x, i: torch.gather(x, 2, i[:, None, :].remainder(6).expand(-1, x.shape[1], -1)), x, ids),
        lambda: of(lambda m, i: m.t[i], ids, t=weight(6, 4)),
        lambda: of(lambda i: F.one_hot(i.remainder(6), 6).float(), ids),
        lambda: of(lambda m, i: F.embedding(i.remainder(6), m.t), ids, t=weight(6, 4)),
    ])()


@kind(16)
def reshaping(dice):
    x = dice.choice([dice.image, dice.sequence])(channels=4)
    return dice.choice([
        lambda: of(lambda x: x.flatten(1), x), lambda: of(lambda x: x.flatten(-2), x), lambda: of(lambda x: x.flatten(1, 2), x),
        lambda: of(lambda x: x.reshape(x.shape[0], 2, 2, -1), x), lambda: of(lambda x: x.unflatten(1, (2, -1)), x),
        lambda: of(lambda x: x.transpose(1, -1), x), lambda: of(lambda x: x.movedim(1, -1), x),
        lambda: of(lambda x: x.permute(0, *range(x.dim() - 1, 0, -1)), x), lambda: of(lambda x: x.unsqueeze(-1), x),
        lambda: of(lambda x: x.unsqueeze(1), x), lambda: of(lambda x: x[:, :1].squeeze(1), x),
        lambda: of(lambda x: x[:, :1].expand(-1, 3, *x.shape[2:]), x), lambda: of(lambda x: x.repeat(1, 2, *[1] * (x.dim() - 2)), x),
        lambda: of(lambda x: x.repeat_interleave(2, -1), x), lambda: of(lambda x: x.flip(-1), x), lambda: of(lambda x: x.roll(2, -1), x),
        lambda: of(lambda x: x.mT, x), lambda: of(lambda x: x.tile(2), x), lambda: of(lambda x: x.tril(-1), x), lambda: of(lambda x: x.triu(1), x),
    ])()


@kind(10)
def joining(dice):
    x = dice.any()
    y = torch.randn(x.shape)
    axis = dice.axis(x)
    parts = dice.choice([1, 2])
    return dice.choice([
        lambda: of(lambda x, y: torch.cat([x, y, x], axis), x, y), lambda: of(lambda x, y: torch.stack([x, y], axis), x, y),
        lambda: of(lambda x, y: torch.cat(torch.split(x, parts, axis)[::-1], axis), x, y),
        lambda: of(lambda x, y: torch.chunk(x, 2, axis)[0] * 2, x, y), lambda: of(lambda x, y: (x, y + 1), x, y),
        lambda: of(lambda m, x: torch.cat([m.w.expand(x.shape[0], *m.w.shape[1:]), x], axis), x, w=weight(1, *x.shape[1:])),
        lambda: of(lambda x, y: torch.meshgrid(x[0].flatten(), y[0].flatten(), indexing="ij")[0], x, y),
    ])()


@kind(4)
def scatter(dice):
    x = dice.rows(5)
    ids = torch.randint(0, 5, (x.shape[0], 3))
    return dice.choice([lambda: of(lambda x, i: x.scatter(1, i[:, :1], 1.0), x, ids), lambda: of(lambda x, i: x.scatter_add(1, i, x[:, :3]), x, ids),
                        lambda: of(lambda x, i: x.scatter(1, i[:, :1], x[:, :1] * 2), x, ids)])()


@kind(8)
def batch_parts(dice):
    x = torch.randn(dice.choice([1, 3, 4]), dice.size(), dice.size())
    return dice.choice([lambda: of(lambda x: x[:1], x), lambda: of(lambda x: x[-1:], x), lambda: of(lambda x: x[0], x), lambda: of(lambda x: x.sum(0), x),
                        lambda: of(lambda x: x.transpose(0, 1), x), lambda: of(lambda x: x[::2], x), lambda: of(lambda x: x.flatten(0, 1), x),
                        lambda: of(lambda x: x.mean(), x), lambda: of(lambda x: torch.cat([x, x], 0), x), lambda: of(lambda x: x.softmax(0), x)])()


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


# Drawing ----------------------------------------------------------------------------------------------------------------------------

class Between(nn.Module):
    """A module between two convolutions, as a network has it: what static int8 computes in integers."""

    def __init__(self, body, channels, inner):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(channels, channels, 1), nn.ReLU())
        self.first[0].bias.data.fill_(0.5)  # some of the numbers are above 0
        self.body = body
        self.last = nn.Conv2d(inner, 3, 1)

    def forward(self, x):
        return self.last(self.body(self.first(x)))


def drawn():
    """(name, module, inputs, whether static int8 forms are for it), the same at each call."""
    for name, (make, draws, int8) in KINDS.items():
        for draw in range(draws):
            seed = zlib.crc32(f"{name}.{draw}".encode())
            torch.manual_seed(seed)
            module, inputs = make(Dice(seed))
            module.eval()
            yield f"{name}.{draw}", module, inputs, False
        for draw in range(draws if int8 else 0):
            seed = zlib.crc32(f"{name}.int8.{draw}".encode())
            torch.manual_seed(seed)
            module, inputs = make(Dice(seed))
            if len(inputs) != 1 or inputs[0].dim() != 4:
                inputs = (torch.randn(2, 4, 7, 8),)
            with torch.no_grad():
                inner = module.eval()(inputs[0])
            between = Between(module, inputs[0].shape[1], inner.shape[1])
            yield f"{name}.int8.{draw}", between.eval(), inputs, True
