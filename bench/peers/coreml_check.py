#!/usr/bin/env python3
"""Core ML packages of coreml_networks beside ulp, judged by coremltools.

    coreml_networks out float && .deps/peers-venv/bin/python bench/peers/coreml_check.py out

Each package is read by coremltools' own code: the manifest, the model's description, the program and the file of weights. Its parser
builds every operation again with PyMIL, which infers types and sizes; they must be those that the file says. Core ML itself runs on
Apple's systems alone, so the parsed program is computed here, operation by operation, in PyTorch, and its results are compared with
ulp's. f16 is computed in f32 and rounded after each operation.
"""

import argparse
import glob
import logging
import os
import sys
import warnings

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

import numpy as np
import torch
from torch.nn import functional

import coremltools
from coremltools.converters.mil.frontend.milproto import load as milproto
from coremltools.converters.mil.mil import types

from differences import largest_share

AROUND = {"valid": lambda pad: [0] * len(pad), "custom": list}


def padded(x, pad, value=0.0):
    """Pairs of the last dimensions from the front, as Core ML lists them."""
    pairs = [pad[i:i + 2] for i in range(0, len(pad), 2)]
    return functional.pad(x, [n for pair in reversed(pairs) for n in pair], value=value)


def conv(op, x, weight, bias=None, **_):
    dims = x.dim() - 2
    pad = AROUND[op.pad_type.val]([int(n) for n in op.pad.val]) if op.pad is not None else [0] * 2 * dims
    run = (functional.conv1d, functional.conv2d, functional.conv3d)[dims - 1]
    return run(padded(x, pad), weight, bias, tuple(op.strides.val), 0, tuple(op.dilations.val), int(op.groups.val))


def conv_transpose(op, x, weight, bias=None, **_):
    dims = x.dim() - 2
    run = (functional.conv_transpose1d, functional.conv_transpose2d, functional.conv_transpose3d)[dims - 1]
    pad = AROUND[op.pad_type.val]([int(n) for n in op.pad.val]) if op.pad is not None else [0] * 2 * dims
    if pad[::2] != pad[1::2]:
        raise NotImplementedError("conv_transpose with a pad that is not the same on both sides")
    return run(x, weight, bias, tuple(op.strides.val), tuple(pad[::2]), 0, int(op.groups.val), tuple(op.dilations.val))


def windows(op, x, value):
    """Windows by MIL's rule (coremltools' pool.py): [..., elements] of the padded tensor for each place of the
    result. With ceil_mode a window may end behind the padding, but not begin there; what it reads there is
    `value`, too."""
    dims = x.dim() - 2
    custom = op.pad_type.val == "custom" and op.pad is not None
    pads = [int(n) for n in op.pad.val] if custom else [0] * 2 * dims
    strides = [int(n) for n in op.strides.val] if op.strides is not None else [1] * dims
    for d in range(dims):
        kernel, stride, size = int(op.kernel_sizes.val[d]), strides[d], x.shape[2 + d]
        before, behind = pads[2 * d:2 * d + 2]
        ceil = bool(op.ceil_mode.val)
        count = (size + before + behind - kernel + (stride - 1 if ceil else 0)) // stride + 1
        if ceil and (count - 1) * stride >= size + before and before + behind > 0:
            count -= 1
        end = (count - 1) * stride + kernel
        pair = [0, 0] * (dims - 1) + [before, max(end - size - before, 0)]  # windows that are there lie behind
        x = functional.pad(x, pair, value=value).narrow(2 + d, 0, end).unfold(2 + d, kernel, stride)
    return x.flatten(2 + dims)


def max_pool(op, x, **_):
    return windows(op, x, -torch.inf).amax(-1)


def avg_pool(op, x, **_):
    """By MIL's rule a window counts whole, with what lies behind the padding (coremltools #2772), or only what is
    in the image."""
    sums, counted = windows(op, x, 0.0).sum(-1), windows(op, torch.ones_like(x), 0.0)
    return sums / (counted.sum(-1) if op.exclude_padding_from_average.val else counted.shape[-1])


def layer_norm(op, x, gamma=None, beta=None, **_):
    axes = sorted(axis % x.dim() for axis in op.axes.val)
    assert axes == list(range(axes[0], x.dim()))
    return functional.layer_norm(x, x.shape[axes[0]:], gamma, beta, float(op.epsilon.val))


def slice_by_index(op, x, **_):
    index = []
    for d in range(x.dim()):
        begin, end, step = int(op.begin.val[d]), int(op.end.val[d]), int(op.stride.val[d])
        if op.squeeze_mask.val[d]:
            index.append(begin)
        else:
            index.append(slice(None if op.begin_mask.val[d] else begin, None if op.end_mask.val[d] else end, step))
    return x[tuple(index)]


def gather(op, x, indices, **_):
    axis = int(op.axis.val) % x.dim()
    rows = torch.index_select(x, axis, indices.reshape(-1).long() % x.shape[axis])  # below 0 from the end
    return rows.reshape(x.shape[:axis] + indices.shape + x.shape[axis + 1:])


def pad(op, x, **_):
    pairs = [int(n) for n in op.pad.val]
    if op.mode.val == "constant":
        return padded(x, pairs, float(op.constant_val.val))
    flat = [n for i in range(len(pairs) - 2, -1, -2) for n in pairs[i:i + 2]]
    return functional.pad(x, flat, mode=op.mode.val)


def reduction(run):
    def reduce(op, x, **_):
        axes = list(range(x.dim())) if op.axes is None else [int(axis) for axis in op.axes.val]
        return run(x, dim=axes, keepdim=bool(op.keep_dims.val))
    return reduce


def upsample_bilinear(op, x, **_):
    """By MIL's rule the step is in / out, whatever the factor."""
    size = [int(np.floor(np.float32(factor.val) * n)) for factor, n in
            zip((op.scale_factor_height, op.scale_factor_width), x.shape[-2:])]
    assert bool(op.align_corners.val) != bool(op.half_pixel_centers.val)
    return functional.interpolate(x, size=size, mode="bilinear", align_corners=bool(op.align_corners.val))


def upsample_nearest(op, x, **_):
    factors = int(op.scale_factor_height.val), int(op.scale_factor_width.val)
    assert factors == (op.scale_factor_height.val, op.scale_factor_width.val)
    return x.repeat_interleave(factors[0], dim=-2).repeat_interleave(factors[1], dim=-1)


def gelu(op, x, **_):
    return functional.gelu(x, approximate="none" if op.mode.val == "EXACT" else "tanh")


def topk(op, x, **_):
    return torch.topk(x, int(op.k.val), int(op.axis.val), largest=not op.ascending.val)


def product(x, dim, keepdim):
    for axis in sorted((axis % x.dim() for axis in dim), reverse=True):
        x = x.prod(axis, keepdim=keepdim)
    return x


def scatter_along_axis(op, data, indices, updates, **_):
    axis = int(op.axis.val) % data.dim()
    ids = indices.long() % data.shape[axis]  # below 0 from the end
    return data.scatter_add(axis, ids, updates) if op.mode.val == "add" else data.scatter(axis, ids, updates)


def resample(op, x, coordinates, **_):
    """MIL turns around at the middle of the last pixel in "reflection", at its end in "symmetric": what PyTorch's reflection does
    with and without align_corners."""
    beyond = {"constant": "zeros", "border": "border", "reflection": "reflection", "symmetric": "reflection"}[op.padding_mode.val]
    corners = bool(op.align_corners.val)
    assert op.padding_mode.val != ("symmetric" if corners else "reflection") and op.padding_value.val == 0
    assert op.coordinates_mode.val == "normalized_minus_one_to_one"
    return functional.grid_sample(x, coordinates, op.sampling_mode.val, beyond, corners)


CASTS = {"fp16": torch.float16, "fp32": torch.float32, "int32": torch.int32, "bool": torch.bool}
OF_X = {"relu": torch.relu, "sigmoid": torch.sigmoid, "tanh": torch.tanh, "silu": functional.silu, "exp": torch.exp,
        "sqrt": torch.sqrt, "abs": torch.abs, "floor": torch.floor, "ceil": torch.ceil, "round": torch.round,
        "sin": torch.sin, "cos": torch.cos, "erf": torch.erf, "sign": torch.sign, "square": torch.square,
        "tan": torch.tan, "asin": torch.asin, "acos": torch.acos, "atan": torch.atan, "sinh": torch.sinh, "cosh": torch.cosh,
        "exp2": torch.exp2,
        "softplus": lambda x: functional.softplus(x, threshold=1e9), "logical_not": torch.logical_not,
        "identity": lambda x: x}
OF_XY = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "real_div": torch.div, "maximum": torch.maximum,
         "minimum": torch.minimum, "mod": torch.remainder, "floor_div": torch.floor_divide, "pow": torch.pow,
         "equal": torch.eq, "not_equal": torch.ne, "less": torch.lt,
         "less_equal": torch.le, "greater": torch.gt, "greater_equal": torch.ge, "logical_and": torch.logical_and,
         "logical_or": torch.logical_or}
OPS = {
    "conv": conv, "conv_transpose": conv_transpose, "max_pool": max_pool, "avg_pool": avg_pool,
    "layer_norm": layer_norm, "slice_by_index": slice_by_index, "gather": gather, "pad": pad, "gelu": gelu,
    "upsample_bilinear": upsample_bilinear, "upsample_nearest_neighbor": upsample_nearest,
    "linear": lambda op, x, weight, bias=None, **_: functional.linear(x, weight, bias),
    "matmul": lambda op, x, y, **_: torch.matmul(x.mT if op.transpose_x.val else x, y.mT if op.transpose_y.val else y),
    "clip": lambda op, x, **_: torch.clamp(x, float(op.alpha.val), float(op.beta.val)),
    "sigmoid_hard": lambda op, x, **_: torch.clamp(float(op.alpha.val) * x + float(op.beta.val), 0, 1),
    "leaky_relu": lambda op, x, **_: functional.leaky_relu(x, float(op.alpha.val)),
    "elu": lambda op, x, **_: functional.elu(x, float(op.alpha.val)),
    "prelu": lambda op, x, alpha: functional.prelu(x, alpha),
    "log": lambda op, x, **_: torch.log(x + float(op.epsilon.val)),
    "softmax": lambda op, x, **_: torch.softmax(x, int(op.axis.val)),
    "reduce_mean": reduction(torch.mean), "reduce_sum": reduction(torch.sum), "reduce_max": reduction(torch.amax),
    "reduce_min": reduction(torch.amin), "reduce_log_sum_exp": reduction(torch.logsumexp),
    "reduce_argmax": lambda op, x, **_: torch.argmax(x, int(op.axis.val), bool(op.keep_dims.val)).int(),
    "reduce_argmin": lambda op, x, **_: torch.argmin(x, int(op.axis.val), bool(op.keep_dims.val)).int(),
    "reduce_prod": reduction(product), "topk": topk, "scatter_along_axis": scatter_along_axis, "resample": resample,
    "argsort": lambda op, x, **_: torch.argsort(x, dim=int(op.axis.val), descending=not op.ascending.val).int(),
    "cumsum": lambda op, x, **_: torch.cumsum(x, int(op.axis.val)).to(x.dtype),
    "reshape": lambda op, x, **_: x.reshape([int(n) for n in op.shape.val]),
    "transpose": lambda op, x, **_: x.permute([int(n) for n in op.perm.val]),
    "tile": lambda op, x, **_: x.repeat([int(n) for n in op.reps.val]),
    "concat": lambda op, values, **_: torch.cat(values, int(op.axis.val)),
    "stack": lambda op, values, **_: torch.stack(values, int(op.axis.val)),
    "split": lambda op, x, **_: torch.split(x, [int(n) for n in op.split_sizes.val], int(op.axis.val)),
    "gather_along_axis": lambda op, x, indices, **_: torch.gather(x, int(op.axis.val), indices.long() % x.shape[int(op.axis.val)]),
    "cast": lambda op, x, **_: x.to(CASTS[op.dtype.val]),
    "select": lambda op, cond, a, b: torch.where(cond, a, b),
    "pixel_shuffle": lambda op, x, **_: functional.pixel_shuffle(x, int(op.upscale_factor.val)),
}


def tensor_of(value):
    """A constant as PyTorch computes with it: f16 as the f32 of the same number."""
    array = np.asarray(value)
    return torch.from_numpy(np.array(array.astype(np.float32) if array.dtype == np.float16 else array))


def compute(op, inputs):
    """The results of one operation."""
    if op.op_type in OF_X:
        made = OF_X[op.op_type](inputs["x"])
    elif op.op_type in OF_XY:
        made = OF_XY[op.op_type](inputs["x"], inputs["y"])
    elif op.op_type in OPS:
        made = OPS[op.op_type](op, **inputs)
    else:
        raise NotImplementedError(op.op_type)
    results = list(made) if isinstance(made, (list, tuple)) else [made]
    for i, var in enumerate(op.outputs):
        if var.dtype == types.fp16:
            results[i] = results[i].half().float()
        if tuple(results[i].shape) != tuple(var.shape):
            raise SystemExit(f"expected {op.op_type} '{var.name}' to give {tuple(var.shape)}, got {tuple(results[i].shape)}")
    return results


def evaluate(function, inputs):
    """The results of the program on arrays by their names."""
    values = {var: tensor_of(inputs[name]) for name, var in function.inputs.items()}
    for op in function.operations:
        if op.op_type == "const":
            if not isinstance(op.outputs[0].val, str):
                values[op.outputs[0]] = tensor_of(op.outputs[0].val)
            continue
        if op.op_type == "constexpr_affine_dequantize":
            values[op.outputs[0]] = tensor_of(op.materialized_val_inference())
            continue
        given = {}
        for name, var in op.inputs.items():
            if var is None or name.startswith("_"):
                continue
            if isinstance(var, (list, tuple)):
                given[name] = [values[one] for one in var]
            elif var in values:
                given[name] = values[var]
        for var, result in zip(op.outputs, compute(op, given)):
            values[var] = result
    return [values[var].numpy() for var in function.outputs]


def parsed(path):
    """The program as coremltools reads it; sizes and types are those that the file says."""
    model = coremltools.models.MLModel(path, skip_model_load=True)
    spec = model.get_spec()
    program = milproto.load(spec, spec.specificationVersion, model.weights_dir)
    function = program.functions["main"]
    said = spec.mlProgram.functions["main"]
    inferred = {var.name: var for op in function.operations for var in op.outputs}
    for operation in said.block_specializations[said.opset].operations:
        for output in operation.outputs:
            shape = tuple(dim.constant.size for dim in output.type.tensorType.dimensions)
            var = inferred[output.name]
            name = types.PROTO_TO_BUILTIN_TYPE[output.type.tensorType.dataType]
            if (shape, name) != (tuple(var.shape), var.dtype):
                raise SystemExit(f"{path}: expected '{output.name}' as {var.shape} {var.dtype}, the file says {shape} {name}")
    for var, output in zip(function.outputs, spec.description.output):
        if var.name != output.name or tuple(var.shape) != tuple(output.type.multiArrayType.shape):
            raise SystemExit(f"{path}: expected result '{var.name}' {var.shape} in the description")
    return spec, function


def check(path):
    """One line of the table."""
    spec, function = parsed(path)
    counts = len([op for op in function.operations if op.op_type != "const"])
    codes = len([op for op in function.operations if op.op_type == "constexpr_affine_dequantize"])
    names = [one.name for one in spec.description.input]
    stem = path[:-len(".mlpackage")]
    with torch.no_grad():
        theirs = evaluate(function, {names[0]: np.load(stem + ".1.x.npy")})[0]
    ours = np.load(stem + ".1.y.npy")
    relative = largest_share(theirs, ours)
    line = f"{os.path.basename(stem):22} coremltools {coremltools.__version__}: {counts} operations"
    print(line + (f", {codes} weights in codes" if codes else "") + f": {relative:.1e}", flush=True)
    return relative


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--only", default="*", help="a pattern of the packages' names")
    parser.add_argument("--most", type=float, default=1e-5, help="the largest difference, as a share of the largest result")
    arguments = parser.parse_args()
    paths = sorted(glob.glob(os.path.join(arguments.folder, arguments.only + ".mlpackage")))
    if not paths:
        raise SystemExit(f"expected packages in {arguments.folder}")
    worst = max(check(path) for path in paths)
    print(f"{len(paths)} packages, largest difference {worst:.1e}")
    if not worst <= arguments.most:
        sys.exit(f"expected at most {arguments.most:.1e}")


if __name__ == "__main__":
    main()
