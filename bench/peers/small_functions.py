"""Small modules: elementwise functions, reductions and shapes (small_modules.py draws them)."""

import torch
from torch import nn
from torch.nn import functional as F

from small_modules import kind, of, weight

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
    "signbit": lambda x: torch.signbit(x).float(), "copysign_number": lambda x: torch.copysign(x, -1.0), "deg2rad": torch.deg2rad,
    "isposinf": lambda x: torch.isposinf(x.round().reciprocal()).float(),
}
COMPARISONS = {"eq": torch.eq, "ne": torch.ne, "lt": torch.lt, "le": torch.le, "gt": torch.gt, "ge": torch.ge}
PAIRS = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": lambda x, y: x / (y.abs() + 0.5), "maximum": torch.maximum,
    "minimum": torch.minimum, "pow": lambda x, y: (x.abs() + 0.5) ** y, "atan2": torch.atan2,
    "remainder": lambda x, y: torch.remainder(x, y.abs() + 0.5), "fmod": lambda x, y: torch.fmod(x, y.abs() + 0.5),
    "add_alpha": lambda x, y: torch.add(x, y, alpha=-2), "sub_alpha": lambda x, y: torch.sub(x, y, alpha=0.5),
    "div_floor": lambda x, y: torch.div(x, y.abs() + 0.5, rounding_mode="floor"), "hypot": lambda x, y: torch.sqrt(x * x + y * y + 1),
    "hypot_itself": torch.hypot, "copysign_itself": torch.copysign, "heaviside_itself": lambda x, y: torch.heaviside(x.round(), y), "fmax": torch.fmax,
    "fmin": torch.fmin, "logaddexp2": torch.logaddexp2, "xlogy": lambda x, y: torch.xlogy(x, y.abs() + 0.5), "ldexp": torch.ldexp,
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


@kind(16)
def orders(dice):
    x = dice.any()
    axis, keep = dice.axis(x), dice.coin()
    k = dice.randint(1, x.shape[axis])
    return dice.choice([
        lambda: of(lambda x: tuple(torch.median(x, axis, keep)), x), lambda: of(lambda x: tuple(torch.kthvalue(x, k, axis, keep)), x),
        lambda: of(lambda x: tuple(torch.cummax(x, axis)), x), lambda: of(lambda x: tuple(torch.cummin(x, axis)), x),
        lambda: of(lambda x: torch.logcumsumexp(x, axis), x), lambda: of(lambda x: tuple(torch.aminmax(x, dim=axis, keepdim=keep)), x),
        lambda: of(lambda x: torch.var_mean(x, dim=axis, correction=0, keepdim=keep), x),
        lambda: of(lambda x: torch.std_mean(x, dim=axis, correction=0, keepdim=keep), x),
        lambda: of(lambda x: torch.nansum(x, axis, keep), x), lambda: of(lambda x: torch.count_nonzero(x.round(), axis), x),
    ])()


@kind(6)
def sorting_buckets(dice):
    x = dice.any()
    right, bounds = dice.coin(), torch.randn(dice.randint(1, 5)).sort()[0]
    return dice.choice([
        lambda: of(lambda m, x: torch.bucketize(x, m.b, right=right), x, b=bounds),
        lambda: of(lambda m, x: torch.searchsorted(m.b, x, right=right), x, b=bounds),
        lambda: of(lambda x: torch.searchsorted(x.sort(-1)[0], x + 0.3, right=right), x),
    ])()


@kind(4)
def fourier(dice):
    x = dice.any()
    axis, norm = dice.axis(x), dice.choice(["backward", "ortho", "forward"])
    return dice.choice([
        lambda: of(lambda x: torch.fft.rfft(x, dim=axis, norm=norm).abs(), x),
        lambda: of(lambda x: torch.fft.irfft(torch.fft.rfft(x, dim=axis) * 0.5, n=x.shape[axis], dim=axis, norm=norm), x),
        lambda: of(lambda x: torch.fft.fft(torch.fft.fft(x, dim=axis, norm=norm), dim=-1).real, x),
    ])()


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


@kind(14)
def turned_and_written(dice):
    x = dice.any()
    axis, offset, turns = dice.axis(x), dice.randint(-1, 1), dice.randint(-1, 3)
    ids = torch.tensor([0, x.shape[axis] - 1, 0])
    planes = dice.sequence()
    return dice.choice([
        lambda: of(lambda x: torch.diag_embed(x, offset), x), lambda: of(lambda x: torch.diag_embed(x, offset, 1, -1), x),
        lambda: of(lambda x: x.diagonal(0, 1, 2), planes), lambda: of(lambda x: torch.rot90(x, turns, (1, 2)) * 1, planes),
        lambda: of(lambda x: x.unfold(axis, max(1, x.shape[axis] // 2), 1), x),
        lambda: of(lambda m, x: x.index_fill(axis, m.i, -2.0), x, i=ids[:2]),
        lambda: of(lambda m, x: x.index_add(axis, m.i, x.index_select(axis, m.i), alpha=0.5), x, i=ids),
        lambda: of(lambda m, x: x.index_copy(axis, m.i, x.index_select(axis, m.i) * 2), x, i=ids[:1]),
        lambda: of(lambda x: torch.slice_scatter(x, x.narrow(axis, 0, 1) * 2, axis, 0, 1), x),
        lambda: of(lambda x: torch.select_scatter(x, x.select(axis, 0) * 2, axis, -1), x),
        lambda: of(lambda x: torch.tril(x, offset) + torch.triu(x, -offset), planes),
    ])()


@kind(6)
def small_products(dice):
    x = dice.rows(dice.size())
    planes = dice.sequence()
    three = torch.randn(x.shape[0], 3, dice.size())
    return dice.choice([
        lambda: of(lambda m, x: torch.mv(x, m.v), x, v=torch.randn(x.shape[1])),
        lambda: of(lambda m, x: torch.addmv(x[:, 0], x, m.v, beta=0.5, alpha=2), x, v=torch.randn(x.shape[1])),
        lambda: of(lambda x: torch.baddbmm(x @ x.mT, x, x.mT, beta=0.5, alpha=2), planes),
        lambda: of(lambda x: torch.linalg.cross(x, x.flip(2) + 1, dim=1), three),
    ])()


@kind(4)
def places_of_pools(dice):
    x = dice.image(low=4)
    kernel, stride = dice.choice([2, 3]), dice.choice([1, 2])
    return dice.choice([
        lambda: of(lambda x: F.max_pool2d(x, kernel, stride, kernel // 2, return_indices=True), x),
        lambda: of(lambda x: F.adaptive_max_pool2d(x, (2, 3), return_indices=True), x),
        lambda: of(lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2, output_size=x.shape[2:]), x),
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
