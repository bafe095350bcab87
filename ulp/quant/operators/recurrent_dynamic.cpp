// ulp::lstm_dynamic and ulp::gru_dynamic: products by ulp::linear_dynamic, gates by the cells of the kernels.
#include <torch/library.h>
#include <torch/utils.h>

#include <tuple>

#include "ulp/base/error.h"
#include "ulp/kernels/sequence/recurrent_cell.h"
#include "ulp/quant/static/op_support.h"
#include "ulp/quant/weights/dynamic.h"

namespace ulp::quant {
namespace {

using at::Tensor;
using kernels::Cell;

/// What a call says beside its tensors.
struct Layers {
  Cell cell;
  bool biases, per_tensor;
  int64_t count, directions;
  const char* where() const { return cell == Cell::lstm ? "quant.lstm_dynamic" : "quant.gru_dynamic"; }
  size_t stride() const { return biases ? 6 : 4; }
};

/// The tensors of one layer and direction.
struct Matrices {
  Tensor input, input_scale, hidden, hidden_scale;
  std::optional<Tensor> input_bias, hidden_bias;
};

Matrices matrices_of(at::TensorList params, size_t first, bool biases) {
  Matrices m{params[first], params[first + 1], params[first + 2], params[first + 3], {}, {}};
  if (biases) m.input_bias = params[first + 4], m.hidden_bias = params[first + 5];
  return m;
}

/// h of one layer and direction for x [N, steps, features]; h and c [N, hidden] are replaced by the last
/// ones.
Tensor run_direction(const Layers& layers, const Tensor& x, const Matrices& m, bool reverse, Tensor& h,
                     Tensor& c) {
  const int64_t rows = x.size(0), steps = x.size(1), width = h.size(1);
  const int64_t gates = kernels::gate_count(layers.cell) * width;
  if (m.input.size(0) != gates || m.hidden.size(0) != gates) {
    fail(layers.where(), "expected weights of ", gates, " rows for a state of ", width, ", got ",
         m.input.size(0), " and ", m.hidden.size(0));
  }
  const Tensor input =
      linear_dynamic(x, m.input, m.input_scale, m.input_bias, layers.per_tensor).contiguous();
  Tensor y = at::empty({rows, steps, width}, at::kFloat);
  for (int64_t i = 0; i < steps; ++i) {
    const int64_t t = reverse ? steps - 1 - i : i;
    const Tensor hidden =
        linear_dynamic(h, m.hidden, m.hidden_scale, m.hidden_bias, layers.per_tensor).contiguous();
    kernels::run_cell(layers.cell, rows, width,
                      {.input_gates = input.const_data_ptr<float>() + t * gates,
                       .hidden_gates = hidden.const_data_ptr<float>(),
                       .h = h.mutable_data_ptr<float>(),
                       .c = c.defined() ? c.mutable_data_ptr<float>() : nullptr,
                       .y = y.mutable_data_ptr<float>() + t * width,
                       .input_stride = steps * gates,
                       .y_stride = steps * width},
                      kernels::Isa::portable);
  }
  return y;
}

/// Copies of the first states, one for each layer and direction.
std::vector<Tensor> split_states(const Layers& layers, const Tensor& states, int64_t batch) {
  const int64_t count = layers.count * layers.directions;
  if (states.dim() != 3 || states.size(0) != count || states.size(1) != batch) {
    fail(layers.where(), "expected a first state [", count, ", ", batch, ", hidden], got ", states.sizes());
  }
  std::vector<Tensor> each;
  for (const Tensor& state : states.to(at::kCPU, at::kFloat).unbind(0)) {
    each.push_back(state.clone(at::MemoryFormat::Contiguous));
  }
  return each;
}

struct Results {
  Tensor y, h, c;
};

/// `c0` is not defined for a gru.
Results run_layers(const Layers& layers, const Tensor& input, const Tensor& h0, const Tensor& c0,
                   at::TensorList params, bool batch_first) {
  const at::NoGradGuard no_grad;
  check_floating(layers.where(), input);
  if (input.dim() != 3 || input.numel() == 0) {
    fail(layers.where(), "expected sequences of 3 dimensions, got ", input.sizes());
  }
  if (params.size() != static_cast<size_t>(layers.count * layers.directions) * layers.stride()) {
    fail(layers.where(), "expected ", layers.stride(), " tensors a layer and direction, got ", params.size(),
         " in all");
  }
  Tensor x = input.to(at::kCPU, at::kFloat);
  if (!batch_first) x = x.transpose(0, 1);
  std::vector<Tensor> h = split_states(layers, h0, x.size(0));
  std::vector<Tensor> c(h.size());
  if (c0.defined()) c = split_states(layers, c0, x.size(0));
  for (int64_t layer = 0; layer < layers.count; ++layer) {
    std::vector<Tensor> parts;
    for (int64_t direction = 0; direction < layers.directions; ++direction) {
      const auto index = static_cast<size_t>(layer * layers.directions + direction);
      const Matrices m = matrices_of(params, index * layers.stride(), layers.biases);
      parts.push_back(run_direction(layers, x, m, direction == 1, h[index], c[index]));
    }
    x = parts.size() == 1 ? parts[0] : at::cat(parts, 2);
  }
  if (!batch_first) x = x.transpose(0, 1).contiguous();
  const auto like_input = [&](const Tensor& t) { return t.to(input.options()); };
  return {like_input(x), like_input(at::stack(h)), c0.defined() ? like_input(at::stack(c)) : Tensor()};
}

std::tuple<Tensor, Tensor, Tensor> lstm_dynamic_kernel(const Tensor& input, at::TensorList hx,
                                                       at::TensorList params, bool has_biases,
                                                       int64_t num_layers, bool bidirectional,
                                                       bool batch_first, bool per_tensor) {
  const Layers layers{Cell::lstm, has_biases, per_tensor, num_layers, bidirectional ? 2 : 1};
  if (hx.size() != 2) fail(layers.where(), "expected two first states, got ", hx.size());
  const Results results = run_layers(layers, input, hx[0], hx[1], params, batch_first);
  return {results.y, results.h, results.c};
}

std::tuple<Tensor, Tensor> gru_dynamic_kernel(const Tensor& input, const Tensor& hx, at::TensorList params,
                                              bool has_biases, int64_t num_layers, bool bidirectional,
                                              bool batch_first, bool per_tensor) {
  const Layers layers{Cell::gru, has_biases, per_tensor, num_layers, bidirectional ? 2 : 1};
  const Results results = run_layers(layers, input, hx, {}, params, batch_first);
  return {results.y, results.h};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(ulp, m) {
  m.def(
      "lstm_dynamic(Tensor input, Tensor[] hx, Tensor[] params, bool has_biases, int num_layers, "
      "bool bidirectional, bool batch_first, bool per_tensor) -> (Tensor, Tensor, Tensor)");
  m.def(
      "gru_dynamic(Tensor input, Tensor hx, Tensor[] params, bool has_biases, int num_layers, "
      "bool bidirectional, bool batch_first, bool per_tensor) -> (Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(ulp, CompositeExplicitAutograd, m) {
  m.impl("lstm_dynamic", lstm_dynamic_kernel);
  m.impl("gru_dynamic", gru_dynamic_kernel);
}

TORCH_LIBRARY_IMPL(ulp, Autograd, m) {
  m.impl("lstm_dynamic", torch::CppFunction::makeFallthrough());
  m.impl("gru_dynamic", torch::CppFunction::makeFallthrough());
}

}  // namespace ulp::quant
