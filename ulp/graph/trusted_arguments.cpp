#include "ulp/graph/trusted_arguments.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string_view>

#include "ulp/base/error.h"
#include "ulp/graph/named_arguments.h"

namespace ulp::graph {

namespace {

using c10::IValue;

/// Ends the checks of a call.
struct Distrusted {
  std::string expected;
};

template <typename... Parts>
[[noreturn]] void distrust(const Parts&... parts) {
  throw Distrusted{concatenate(parts...)};
}

at::Tensor tensor_in(const NamedArguments& given, const char* name) {
  const IValue value = given[name];
  if (!value.isTensor() || !value.toTensor().defined()) distrust("the tensor '", name, "'");
  return value.toTensor();
}

std::vector<int64_t> numbers_in(const NamedArguments& given, const char* name) {
  const IValue value = given[name];
  return value.isIntList() ? value.toIntVector() : std::vector<int64_t>();
}

bool flag_in(const NamedArguments& given, const char* name) {
  const IValue value = given[name];
  return value.isBool() && value.toBool();
}

/// Dimensions of a transform are not looked at before memory is read by them.
void check_transform(const NamedArguments& given) {
  const std::string_view op = given.schema().name();
  const at::Tensor x = tensor_in(given, "self");
  const std::vector<int64_t> dims = numbers_in(given, "dim");
  constexpr int64_t kNormalizations = 3;
  std::set<int64_t> seen;
  for (const int64_t dim : dims) {
    if (dim < 0 || dim >= x.dim() || !seen.insert(dim).second)
      distrust("a transform along each of ", x.dim(), " dimensions once, got ", at::IntArrayRef(dims));
  }
  if (dims.empty() && op != "aten::_fft_c2c") distrust("a transform along some dimension, got none");
  const IValue normalization = given["normalization"], last = given["last_dim_size"];
  if (normalization.isInt() && (normalization.toInt() < 0 || normalization.toInt() >= kNormalizations))
    distrust("a normalization of 0 to 2, got ", normalization.toInt());
  if (last.isInt() && (last.toInt() < 1 || x.size(dims.back()) != last.toInt() / 2 + 1))
    distrust("a result of ", 2 * (x.size(dims.back()) - 1), " or one more, got ", last.toInt());
}

/// Scales take the place of the quotients of sizes: others lead out of the image.
void check_scales(const NamedArguments& given) {
  const std::vector<int64_t> sizes = numbers_in(given, "output_size");
  if (sizes.empty()) return;  // sizes that follow the scales
  if (given["input"].isTensor())
    return;  // a list of factors, which LibTorch takes in the place of sizes alone
  const at::Tensor x = tensor_in(given, "self");
  static const std::vector<std::vector<const char*>> kNames = {
      {"scales"}, {"scales_h", "scales_w"}, {"scales_d", "scales_h", "scales_w"}};
  if (sizes.size() > kNames.size() || x.dim() != static_cast<int64_t>(sizes.size()) + 2) return;  // refused
  for (size_t i = 0; i < sizes.size(); ++i) {
    const IValue scale = given[kNames[sizes.size() - 1][i]];
    if (!scale.isDouble()) continue;
    const auto size = static_cast<double>(x.size(static_cast<int64_t>(i) + 2));
    // PyTorch rounds the product down.
    if (!(std::abs(size * scale.toDouble() - static_cast<double>(sizes[i])) <= 1))
      distrust("a scale of ", sizes[i], " / ", x.size(static_cast<int64_t>(i) + 2), ", got ",
               scale.toDouble());
  }
}

/// A pool walks through its padding for every result.
void check_padding(const NamedArguments& given) {
  constexpr int64_t kMost = 1024;
  const std::vector<int64_t> padding = numbers_in(given, "padding");
  const at::Tensor x = tensor_in(given, "self");
  if (std::ssize(padding) > x.dim()) return;  // refused
  for (size_t i = 0; i < padding.size(); ++i) {
    // One number stands for all dimensions: the last of them bounds it.
    const int64_t most = std::max(kMost, x.size(static_cast<int64_t>(i) - std::ssize(padding)));
    if (padding[i] > most) distrust("paddings of at most ", most, ", got ", padding[i]);
  }
}

struct LayerSizes {
  int64_t inputs, states, results;  ///< results: of a projection, else the states
};

/// Weights of one direction of a layer, in LibTorch's order.
void check_layer(const at::Tensor* weights, const LayerSizes& sizes, int64_t gates, bool biases) {
  const std::vector<int64_t> rows = {gates * sizes.states};
  std::vector<std::vector<int64_t>> wanted = {{rows[0], sizes.inputs}, {rows[0], sizes.results}};
  if (biases) wanted.insert(wanted.end(), 2, rows);
  if (sizes.results != sizes.states) wanted.push_back({sizes.results, sizes.states});
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (weights[i].sizes() != wanted[i])
      distrust("weights of ", at::IntArrayRef(wanted[i]), " in a recurrent layer, got ", weights[i].sizes());
  }
}

/// Samples of each step of a packed sequence: they fall, and are those of the rows.
void check_packed(const NamedArguments& given, int64_t batch) {
  const at::Tensor counts = tensor_in(given, "batch_sizes");
  const int64_t rows = tensor_in(given, "data").size(0);
  bool fits = counts.scalar_type() == at::kLong && counts.dim() == 1 && counts.numel() > 0;
  if (fits) {
    const at::Tensor numbers = counts.contiguous();
    const auto* first = numbers.const_data_ptr<int64_t>();
    int64_t before = batch, left = rows;
    for (int64_t i = 0; fits && i < numbers.numel(); ++i) {
      fits = first[i] > 0 && first[i] <= before && first[i] <= left && (i > 0 || first[i] == batch);
      before = first[i];
      left -= first[i];
    }
    fits = fits && left == 0;
  }
  if (!fits) distrust("falling numbers of samples that are ", rows, " together and begin with ", batch);
}

void check_recurrent(const NamedArguments& given) {
  const std::string_view op = given.schema().name();
  const bool lstm = op == "aten::lstm", packed = given["data"].isTensor();
  const int64_t gates = lstm ? 4 : op == "aten::gru" ? 3 : 1;
  const at::Tensor x = tensor_in(given, packed ? "data" : "input");
  const std::vector<at::Tensor> hidden =
      lstm ? given["hx"].toTensorVector() : std::vector<at::Tensor>{tensor_in(given, "hx")};
  const std::vector<at::Tensor> weights = given["params"].toTensorVector();
  const int64_t layers = given["num_layers"].toInt(), directions = flag_in(given, "bidirectional") ? 2 : 1;
  const bool three = std::ranges::all_of(hidden, [](const at::Tensor& one) { return one.dim() == 3; });
  if (hidden.size() != (lstm ? 2U : 1U) || !three || x.dim() != (packed ? 2 : 3))
    distrust("an input and states of the dimensions of a recurrent layer");
  const at::Tensor& cells = hidden.back();
  const int64_t batch = hidden[0].size(1);
  const LayerSizes first{x.size(-1), cells.size(2), hidden[0].size(2)};
  const bool biases = flag_in(given, "has_biases"), projects = first.results != first.states;
  const int64_t each = (biases ? 4 : 2) + (projects ? 1 : 0);
  constexpr int64_t kMostLayers = 10'000;
  if (layers < 1 || layers > kMostLayers || std::ssize(weights) != layers * directions * each)
    distrust("weights of ", layers, " layers, got ", weights.size(), " of them");
  for (const at::Tensor& one : hidden) {
    if (one.size(0) != layers * directions || one.size(1) != batch)
      distrust("states of ", layers * directions, " layers and directions, got ", one.sizes());
  }
  for (int64_t i = 0; i < layers * directions; ++i) {
    LayerSizes sizes = first;
    if (i >= directions) sizes.inputs = directions * first.results;
    check_layer(&weights[static_cast<size_t>(i * each)], sizes, gates, biases);
  }
  if (packed) return check_packed(given, batch);
  if (x.size(flag_in(given, "batch_first") ? 0 : 1) != batch)
    distrust("states of the batch of ", x.sizes(), ", got ", hidden[0].sizes());
}

/// A place before the first id is read.
void check_bags(const NamedArguments& given) {
  const at::Tensor offsets = tensor_in(given, "offsets");
  if (offsets.dim() != 1 || offsets.numel() == 0) return;  // refused, or no bags
  const at::Tensor before = offsets.narrow(0, 0, offsets.numel() - 1);
  if (offsets[0].item<int64_t>() != 0 ||
      offsets.narrow(0, 1, offsets.numel() - 1).lt(before).any().item<bool>())
    distrust("bags that begin at 0 and behind each other");
}

/// The memory of the columns follows the kernel's sizes, and the product reads as many of the weight.
void check_kernel(const NamedArguments& given) {
  const std::vector<int64_t> kernel = numbers_in(given, "kernel_size");
  const at::Tensor weight = tensor_in(given, "weight");
  const auto dims = static_cast<int64_t>(kernel.size());
  if (weight.dim() != dims + 2 || weight.sizes().slice(2) != at::IntArrayRef(kernel))
    distrust("a kernel of the sizes of the weight ", weight.sizes(), ", got ", at::IntArrayRef(kernel));
}

void check_count(const NamedArguments& given, int64_t most) {
  const IValue count = given["n"];
  if (count.isInt() && (count.toInt() < -most || count.toInt() > most))
    distrust("a count of at most ", most, ", got ", count.toInt());
}

/// The lowest whole number by -1 ends the process on x86.
void check_quotient(const NamedArguments& given) {
  const IValue mode = given["rounding_mode"], other = given["other"];
  if (!mode.isString() || mode.toStringRef() != "trunc") return;
  const at::Tensor x = tensor_in(given, "self");
  if (!at::isIntegralType(x.scalar_type(), /*includeBool=*/false)) return;
  const auto has = [](const at::Tensor& numbers, int64_t number) {
    return numbers.eq(number).any().item<bool>();
  };
  const bool by_minus_one =
      other.isTensor() ? has(other.toTensor(), -1) : other.isInt() && other.toInt() == -1;
  const int64_t lowest = x.scalar_type() == at::kLong  ? std::numeric_limits<int64_t>::min()
                         : x.scalar_type() == at::kInt ? std::numeric_limits<int32_t>::min()
                                                       : 0;
  if (by_minus_one && lowest != 0 && has(x, lowest)) distrust("no division of ", lowest, " by -1");
}

// Each difference is a tensor; powers are as many products as their count has bits, but for the lowest one.
void check_differences(const NamedArguments& given) {
  check_count(given, 64);
}
void check_power(const NamedArguments& given) {
  check_count(given, int64_t{1} << 40);
}

using Check = void (*)(const NamedArguments&);

/// Null where LibTorch checks all.
Check find_check(const c10::FunctionSchema& schema) {
  const std::string_view op = schema.name();
  if (op.starts_with("aten::_fft_")) return check_transform;
  if (op.find("upsample_") != std::string_view::npos) return check_scales;
  if (op.starts_with("aten::max_pool") || op.starts_with("aten::mkldnn_max_pool")) return check_padding;
  if (op == "aten::lstm" || op == "aten::gru" || op == "aten::rnn_tanh" || op == "aten::rnn_relu")
    return check_recurrent;
  if (op == "aten::embedding_bag") return check_bags;
  if (op.starts_with("aten::slow_conv") || op.starts_with("aten::thnn_conv")) return check_kernel;
  if (op == "aten::diff") return check_differences;
  if (op.ends_with("matrix_power")) return check_power;
  if (op.starts_with("aten::div") && schema.argumentIndexWithName("rounding_mode")) return check_quotient;
  return nullptr;
}

}  // namespace

bool trusts_arguments(const c10::FunctionSchema& schema) {
  return find_check(schema) != nullptr;
}

std::string distrusted_argument(const c10::FunctionSchema& schema, const torch::jit::Stack& arguments) {
  const Check check = find_check(schema);
  try {
    if (check != nullptr) check(NamedArguments(schema, arguments));
  } catch (const Distrusted& found) {
    return found.expected;
  }
  return "";
}

}  // namespace ulp::graph
