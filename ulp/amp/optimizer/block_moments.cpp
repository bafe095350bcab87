#include "ulp/amp/optimizer/block_moments.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <sstream>

#include "ulp/amp/optimizer/moment_store.h"
#include "ulp/libtorch/torch_parallel.h"

namespace ulp::amp {

namespace {

using kernels::MomentKind;
using kernels::MomentStore;

MomentKind kind_of(const MomentTensors& moment) {
  return moment.squares ? MomentKind::square : MomentKind::mean;
}

/// A parameter's elements in the order of its memory.
at::Tensor flat(const at::Tensor& dense) {
  return dense.as_strided({dense.numel()}, {1});
}

at::Tensor fp32_like(const at::Tensor& parameter) {
  return at::empty_like(parameter,
                        parameter.options().dtype(c10::kFloat).device(c10::kCPU).requires_grad(false));
}

/// The store of codes that are there; their shapes differ.
MomentStore store_of(const at::Tensor& codes, const at::Tensor& parameter) {
  return codes.sizes() == parameter.sizes() ? MomentStore::int8 : MomentStore::int4;
}

/// The codes of int4 one by one, and back.
at::Tensor unpacked(const at::Tensor& codes, int64_t elements) {
  return at::stack({codes.bitwise_and(15), codes.bitwise_right_shift(4)}, 1).flatten().slice(0, 0, elements);
}
void pack(const at::Tensor& unpacked, at::Tensor& codes) {
  const at::Tensor even = at::constant_pad_nd(unpacked, {0, unpacked.numel() % 2}).view({-1, 2});
  codes.copy_(even.select(1, 0).bitwise_or(even.select(1, 1).bitwise_left_shift(4)));
}

/// The values of bitsandbytes' codes of squares: 0, midpoints of 2, 4, ... 128 equal parts of seven decades,
/// 1.
std::array<float, 256> dynamic_squares() {
  std::array<float, 256> values{};
  size_t code = 1;
  for (int decade = 0; decade < 7; ++decade) {
    const int parts = 2 << decade;
    for (int part = 0; part < parts; ++part)
      values[code++] = static_cast<float>(std::pow(10.0, decade - 6) * (0.1 + 0.9 * (part + 0.5) / parts));
  }
  values[code] = 1;
  return values;
}

void write_codes(const MomentTensors& moment, MomentStore store, const at::Tensor& wide) {
  kernels::store_moments(store, kind_of(moment), wide.const_data_ptr<float>(), wide.numel(),
                         moment.values.data_ptr<uint8_t>(), moment.absmax.data_ptr<float>(),
                         kernels::selected_isa(), libtorch::TorchParallel());
}

}  // namespace

MomentStore moment_store(MomentFormat moments, int64_t elements) {
  switch (moment_format(moments, elements)) {
    case MomentFormat::fp32:
      return MomentStore::f32;
    case MomentFormat::bf16:
      return MomentStore::bf16;
    case MomentFormat::int8:
      return MomentStore::int8;
    case MomentFormat::int4:
      break;
  }
  return MomentStore::int4;
}

int64_t moment_block_count(MomentStore store, int64_t elements) {
  const int64_t block = kernels::moment_block(store);
  return block == 0 ? 0 : (elements + block - 1) / block;
}

void make_moment(const MomentTensors& moment, MomentStore store, const at::Tensor& parameter,
                 const StateMemory& memory) {
  const int64_t n = parameter.numel();
  switch (store) {
    case MomentStore::f32:
      moment.values = memory.zeros(parameter, c10::kFloat);
      return;
    case MomentStore::bf16:
      moment.values = memory.zeros(parameter, c10::kBFloat16);
      return;
    case MomentStore::int8:
      moment.values = memory.zeros(parameter, c10::kByte);
      break;
    case MomentStore::int4:
      moment.values = memory.zeros(kernels::moment_bytes(store, n), c10::kByte);
      break;
  }
  moment.absmax = memory.zeros(moment_block_count(store, n), c10::kFloat);
}

std::string memory_order(const at::Tensor& parameter) {
  std::vector<int64_t> dimensions;
  for (int64_t d = 0; d < parameter.dim(); ++d)
    if (parameter.size(d) != 1) dimensions.push_back(d);
  std::ranges::stable_sort(dimensions, std::greater{}, [&](int64_t d) { return parameter.stride(d); });
  std::ostringstream text;
  for (const int64_t d : dimensions) text << (text.tellp() == 0 ? "" : ",") << d;
  return text.str();
}

std::string moment_problem(const MomentTensors& moment, MomentFormat moments, const at::Tensor& parameter) {
  const int64_t n = parameter.numel();
  const MomentStore store = moment_store(moments, n);
  std::ostringstream text;
  if (const auto type = moment_type(moments, n); moment.values.scalar_type() != type) {
    text << "expected " << type << ", got " << moment.values.dtype();
    return text.str();
  }
  const std::vector<int64_t> packed = {(n + 1) / 2};
  const at::IntArrayRef sizes = store == MomentStore::int4 ? at::IntArrayRef(packed) : parameter.sizes();
  if (moment.values.sizes() != sizes) {
    text << "expected shape " << sizes << ", got " << moment.values.sizes();
    return text.str();
  }
  const int64_t blocks = moment_block_count(store, n);
  if (blocks == 0) return {};
  const at::Tensor& absmax = moment.absmax;
  if (!absmax.defined() || absmax.scalar_type() != c10::kFloat || absmax.dim() != 1 ||
      absmax.numel() != blocks) {
    text << "expected " << blocks << " fp32 numbers in '" << moment.absmax_name << "', got ";
    if (absmax.defined()) {
      text << absmax.dtype() << ' ' << absmax.sizes();
    } else {
      text << "none";
    }
  }
  return text.str();
}

void move_state(FusedParamState& state, c10::Device device) {
  const auto move = [device](at::Tensor& tensor) {
    if (tensor.defined()) tensor = tensor.to(device);
  };
  for_each_moment(state, [&](const MomentTensors& moment) {
    move(moment.values);
    move(moment.absmax);
  });
  move(state.master);
}

void widen_moments(FusedParamState& state, const at::Tensor& parameter) {
  move_state(state, c10::kCPU);
  for_each_moment(state, [&](const MomentTensors& moment) {
    if (!moment.absmax.defined()) return;
    at::Tensor wide = fp32_like(parameter);
    kernels::load_moments(store_of(moment.values, parameter), kind_of(moment),
                          moment.values.const_data_ptr<uint8_t>(), moment.absmax.const_data_ptr<float>(),
                          parameter.numel(), wide.data_ptr<float>(), kernels::selected_isa(),
                          libtorch::TorchParallel());
    moment.values = wide;
    moment.absmax.reset();
  });
  state.memory_order.clear();
}

void narrow_moments(FusedParamState& state, const at::Tensor& parameter, MomentFormat moments) {
  const int64_t n = parameter.numel();
  const MomentStore store = moment_store(moments, n);
  if (kernels::moment_block(store) == 0) return;
  move_state(state, c10::kCPU);
  for_each_moment(state, [&](const MomentTensors& moment) {
    if (!moment.values.defined()) return;
    const at::Tensor wide = fp32_like(parameter).copy_(moment.values);
    make_moment(moment, store, parameter, StateMemory());
    write_codes(moment, store, wide);
    state.memory_order = memory_order(parameter);
  });
}

void renew_square_codes(FusedParamState& state, const at::Tensor& parameter) {
  const std::array<float, 256> values = dynamic_squares();
  move_state(state, c10::kCPU);
  for_each_moment(state, [&](const MomentTensors& moment) {
    if (!moment.squares || !moment.absmax.defined()) return;
    if (store_of(moment.values, parameter) != MomentStore::int8) return;
    const at::Tensor wide = fp32_like(parameter);
    const auto* codes = moment.values.const_data_ptr<uint8_t>();
    const auto* absmax = moment.absmax.const_data_ptr<float>();
    auto* to = wide.mutable_data_ptr<float>();
    for (int64_t i = 0; i < wide.numel(); ++i)
      to[i] = values[codes[i]] * absmax[i / kernels::moment_block(MomentStore::int8)];
    write_codes(moment, MomentStore::int8, wide);
  });
}

void clear_moments(FusedParamState& state, const at::Tensor& parameter, const at::Tensor& held) {
  for_each_moment(state, [&](const MomentTensors& moment) {
    if (!moment.values.defined()) return;
    if (!moment.absmax.defined()) {
      if (moment.values.sizes() == held.sizes()) moment.values.masked_fill_(held, 0);
      return;
    }
    const at::Tensor flat_held =
        flat(at::empty_like(parameter,
                            parameter.options().dtype(c10::kBool).device(c10::kCPU).requires_grad(false))
                 .copy_(held));
    const MomentStore store = store_of(moment.values, parameter);
    const uint8_t zero = kernels::zero_code(store, kind_of(moment));
    if (store == MomentStore::int8) {
      flat(moment.values).masked_fill_(flat_held, zero);
    } else {
      pack(unpacked(moment.values, parameter.numel()).masked_fill(flat_held, zero), moment.values);
    }
  });
}

}  // namespace ulp::amp
