#include "ulp/exchange/onnx_import/bounds.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace ulp::exchange::onnx_import {

namespace {

using at::Tensor;

double as_double(int64_t value) {
  return static_cast<double>(value);
}

double elements(at::IntArrayRef sizes) {
  double all = 1;
  for (const int64_t size : sizes) all *= as_double(size);
  return all;
}

/// Sizes of two tensors over each other, from the last dimension on.
std::vector<int64_t> over(at::IntArrayRef a, at::IntArrayRef b) {
  std::vector<int64_t> sizes(std::max(a.size(), b.size()), 1);
  for (const at::IntArrayRef one : {a, b}) {
    for (size_t d = 0; d < one.size(); ++d) {
      int64_t& size = sizes[sizes.size() - 1 - d];
      size = std::max(size, one[one.size() - 1 - d]);
    }
  }
  return sizes;
}

/// An image [batch, channels, ...] with its padding, of `channels`.
double padded_image(Call& call, const std::vector<int64_t>& x, double channels) {
  const std::vector<int64_t> kernel = call.attribute("kernel_shape", std::vector<int64_t>());
  const std::vector<int64_t> pads = call.attribute("pads", std::vector<int64_t>());
  const size_t dims = std::max<size_t>(x.size(), 2) - 2;
  double all = channels * (x.empty() ? 1 : as_double(x[0]));
  for (size_t d = 0; d < dims; ++d) {
    const int64_t size = x[d + 2];
    const double before = d < pads.size() ? as_double(pads[d]) : 0;
    const double behind = d + dims < pads.size() ? as_double(pads[d + dims]) : 0;
    const double same = call.has_attribute("auto_pad") && d < kernel.size() ? as_double(kernel[d]) : 0;
    all *= std::max(as_double(size) + before + behind + same, 1.0);
  }
  return all;
}

}  // namespace

double broadcast(Call& call) {
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < call.inputs(); ++i) {
    if (call.has(i)) sizes = over(sizes, call.sizes(i));
  }
  return elements(sizes) * std::max(as_double(std::ssize(call.results())), 1.0);
}

double first_input(Call& call) {
  return elements(call.sizes(0));
}

double twice(Call& call) {
  return 2 * first_input(call);
}

double sum_of_inputs(Call& call) {
  double all = 0;
  for (size_t i = 0; i < call.inputs(); ++i) all += elements(call.sizes(i));
  return all;
}

double matrix_product(Call& call) {
  std::vector<int64_t> a = call.sizes(0), b = call.sizes(1);
  const bool gemm = call.node().op == "Gemm";
  const auto turned = [&](const char* name) { return gemm && call.attribute(name, int64_t{0}) != 0; };
  const double rows = a.size() < 2 ? 1 : as_double(a[a.size() - (turned("transA") ? 1 : 2)]);
  const double columns = b.size() < 2 ? 1 : as_double(b[b.size() - (turned("transB") ? 2 : 1)]);
  a.resize(a.size() - std::min<size_t>(a.size(), 2));
  b.resize(b.size() - std::min<size_t>(b.size(), 2));
  return elements(over(a, b)) * rows * columns;
}

double integer_product(Call& call) {
  return matrix_product(call) + elements(call.sizes(0)) + elements(call.sizes(1));
}

double einsum_product(Call& call) {
  const std::string equation = call.attribute("equation", "");
  std::map<char, double> sizes;
  std::vector<int64_t> dots;  // of what '...' stands for, over each other
  const size_t arrow = std::min(equation.find("->"), equation.size());
  size_t begin = 0;
  for (size_t input = 0; begin <= arrow; ++input) {
    const size_t end = std::min(equation.find(',', begin), arrow);
    std::string letters = equation.substr(begin, end - begin);
    std::erase(letters, ' ');
    const size_t place = letters.find("...");
    const std::vector<int64_t> of = call.sizes(input);
    const size_t written = letters.size() - (place == std::string::npos ? 0 : 3);
    if (written > of.size() || (place == std::string::npos && written != of.size()))
      call.refuse("expected an equation of as many letters as dimensions");
    const size_t covered = of.size() - written;
    std::vector<int64_t> here;
    for (size_t d = 0, letter = 0; d < of.size(); ++d) {
      if (place != std::string::npos && d >= place && d < place + covered) {
        here.push_back(std::max<int64_t>(of[d], 1));
        letter = place + 3;
      } else {
        double& size = sizes[letters.at(letter++)];
        size = std::max(size, as_double(of[d]));
      }
    }
    dots = over(dots, here);
    begin = end + 1;
  }
  // Two operands are one product; of more, parts are computed before.
  constexpr size_t kOneProduct = 2;
  double all = elements(dots);
  for (const auto& [letter, size] : sizes) {
    const bool kept = equation.find(letter, arrow) != std::string::npos;
    if (kept || call.inputs() > kOneProduct || arrow == equation.size()) all *= std::max(size, 1.0);
  }
  return all;
}

double convolution(Call& call) {
  const std::vector<int64_t> weight = call.sizes(1), x = call.sizes(0), none;
  const std::vector<int64_t> pads = call.attribute("pads", none), strides = call.attribute("strides", none),
                             dilations = call.attribute("dilations", none);
  const bool automatic = call.has_attribute("auto_pad");
  const size_t dims = std::max<size_t>(x.size(), 2) - 2;
  const auto at = [](const std::vector<int64_t>& list, size_t d, int64_t otherwise) {
    return as_double(d < list.size() ? list[d] : otherwise);
  };
  double padded = at(x, 1, 1), result = at(weight, 0, 1);
  for (size_t d = 0; d < dims; ++d) {
    const double reach = (at(weight, d + 2, 1) - 1) * std::max(at(dilations, d, 1), 1.0);
    const double around = automatic ? reach : at(pads, d, 0) + at(pads, d + dims, 0);
    const double wide = as_double(x[d + 2]) + std::max(around, 0.0);
    padded *= std::max(wide, 1.0);
    result *= std::max((wide - reach) / std::max(at(strides, d, 1), 1.0) + 1, 1.0);
  }
  return at(x, 0, 1) * (padded + result);
}

double transposed_convolution(Call& call) {
  const std::vector<int64_t> weight = call.sizes(1), x = call.sizes(0);
  const std::vector<int64_t> strides = call.attribute("strides", std::vector<int64_t>(weight.size(), 1));
  const std::vector<int64_t> dilations = call.attribute("dilations", std::vector<int64_t>(weight.size(), 1));
  const std::vector<int64_t> more = call.attribute("output_padding", std::vector<int64_t>(weight.size(), 0));
  std::vector<int64_t> shape = call.attribute("output_shape", std::vector<int64_t>());
  if (shape.size() == x.size() && shape.size() >= 2) shape.erase(shape.begin(), shape.begin() + 2);
  double all = x.empty() || weight.size() < 2 ? 1 : as_double(x[0]) * as_double(weight[1]);
  all *= as_double(std::max<int64_t>(call.attribute("group", int64_t{1}), 1));
  for (size_t d = 0; d + 2 < weight.size() && d + 2 < x.size(); ++d) {
    const auto at = [&](const std::vector<int64_t>& list) {
      return d < list.size() ? as_double(std::abs(list[d])) : 1.0;
    };
    all *= as_double(x[d + 2]) * at(strides) + as_double(weight[d + 2]) * at(dilations) + at(more) +
           at(shape) + 1;
  }
  return all;
}

double pooled(Call& call) {
  const std::vector<int64_t> x = call.sizes(0);
  return 2 * padded_image(call, x, x.size() > 1 ? as_double(x[1]) : 1);
}

double gathered(Call& call) {
  const std::vector<int64_t> x = call.sizes(0);
  const int64_t axis = call.dim(call.attribute("axis", int64_t{0}), std::ssize(x));
  double row = 1;
  for (size_t d = 0; d < x.size(); ++d) row *= static_cast<int64_t>(d) == axis ? 1 : as_double(x[d]);
  return row * elements(call.sizes(1));
}

double by_index(Call& call) {
  const std::vector<int64_t> index = call.sizes(1), x = call.sizes(0);
  const size_t depth =
      index.empty() ? 0 : static_cast<size_t>(std::clamp<int64_t>(index.back(), 0, std::ssize(x)));
  double row = 1;
  if (call.node().op == "GatherND") {
    for (size_t d = depth; d < x.size(); ++d) row *= as_double(x[d]);
  }
  return row * elements(index) + elements(x);
}

double filled(Call& call) {
  return elements(call.ints(0));
}

double expanded(Call& call) {
  return elements(over(call.sizes(0), call.ints(1)));
}

double tiled(Call& call) {
  double all = elements(call.sizes(0));
  for (const int64_t times : call.ints(1)) all *= std::abs(as_double(times));
  return all;
}

double padded_bound(Call& call) {
  const std::vector<int64_t> x = call.sizes(0), pads = call.list("pads", 1).value_or(std::vector<int64_t>());
  double all = 1, widest = 0;
  for (const int64_t pad : pads) widest += std::max(as_double(pad), 0.0);
  // Which dimension a pad belongs to is seen later: no dimension becomes wider than by all of them.
  const size_t places = pads.size() / 2;
  if (places != x.size() || call.has(3)) {
    for (const int64_t size : x) all *= as_double(size) + widest;
    return all;
  }
  for (size_t d = 0; d < x.size(); ++d)
    all *= as_double(x[d]) + std::max(as_double(pads[d]), 0.0) + std::max(as_double(pads[d + places]), 0.0);
  return all;
}

double range_bound(Call& call) {
  const double count = (call.number(1) - call.number(0)) / call.number(2) + 1;
  return std::isnan(count) ? HUGE_VAL : std::max(count, 0.0);
}

double one_hot_bound(Call& call) {
  return elements(call.sizes(0)) * std::max(call.number(1), 1.0) * 2;
}

double recurrent_bound(Call& call) {
  const std::vector<int64_t> x = call.sizes(0), weight = call.sizes(2);
  if (x.size() != 3 || weight.size() != 3) call.refuse("expected inputs and weights of 3 dimensions");
  constexpr double kPieces = 8;  // gates, and both products
  // A step costs time, even of nothing.
  const double rows = std::max(as_double(x[1]), 1.0) * std::max(as_double(weight[2]), 1.0);
  return kPieces * as_double(x[0]) * rows * as_double(weight[0]);
}

}  // namespace ulp::exchange::onnx_import
