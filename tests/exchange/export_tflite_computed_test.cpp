// Weights that forward computes of parameters, in TensorFlow Lite files: products with masks, norms, scales
// and turned matrices are folded. Float files and static int8 ones give what the graph gives.
#include <torch/torch.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "captured_function.h"
#include "tflite_run.h"
#include "ulp/exchange/export_tflite.h"
#include "ulp/graph/graph_module.h"
#include "ulp/quant/quantize.h"

namespace ulp::test {

namespace {

using WeightRule = std::function<at::Tensor(const at::Tensor&)>;

/// A weight that forward computes from a stored one of the same sizes; `square`: it may turn it.
std::vector<std::pair<std::string, WeightRule>> weight_rules(const at::Tensor& weight, bool square) {
  const at::Tensor mask = (torch::rand(weight.sizes()) > 0.5).to(at::kFloat);
  const at::Tensor gain = torch::rand({weight.size(0)}) + 0.5, codes = (weight * 64).round().to(at::kChar);
  std::vector<int64_t> row(static_cast<size_t>(weight.dim()), 1);
  row[0] = -1;
  const auto by_row = [=](const at::Tensor& rows) { return rows.reshape(row); };
  const auto norms = [=](const at::Tensor& w) { return by_row(at::linalg_vector_norm(w.flatten(1), 2, 1)); };
  std::vector<std::pair<std::string, WeightRule>> rules = {
      {"mask", [=](const at::Tensor& w) { return w * mask; }},
      {"mask of the sign", [=](const at::Tensor& w) { return at::where(w > 0, w, w * 0.1); }},
      {"weight norm", [=](const at::Tensor& w) { return w / norms(w) * by_row(gain); }},
      {"_weight_norm", [=](const at::Tensor& w) { return at::_weight_norm(w, by_row(gain), 0); }},
      {"spectral scale", [=](const at::Tensor& w) { return w / at::linalg_vector_norm(w.flatten(1), 2); }},
      {"spectral scale by two vectors",
       [=](const at::Tensor& w) {
         const at::Tensor flat = w.flatten(1), u = at::mv(flat.t(), gain), v = at::mv(flat, u / u.norm());
         return w / at::dot(v / v.norm(), v);
       }},
      {"standardized", [=](const at::Tensor& w) { return (w - w.mean()) / (w.std() + 1e-3); }},
      {"codes with scales", [=](const at::Tensor&) { return codes.to(at::kFloat) * by_row(gain / 64); }},
      {"sum of two", [=](const at::Tensor& w) { return w + mask * 0.25; }},
      {"flipped", [=](const at::Tensor& w) { return w.flip(0); }}};
  if (square) rules.push_back({"turned", [=](const at::Tensor& w) { return w.transpose(0, 1) * mask; }});
  return rules;
}

struct ComputedNet {
  std::string name;
  std::shared_ptr<FunctionNet> net;
  at::Tensor x;
};

/// A layer with a weight of each rule; `call` is of x, weight and bias.
template <typename Call>
std::vector<ComputedNet> nets_of(const std::string& name, at::IntArrayRef x_sizes, at::IntArrayRef sizes,
                                 bool square, const Call& call) {
  const at::Tensor weight = torch::randn(sizes) * 0.4, bias = torch::randn({sizes[0]});
  std::vector<ComputedNet> all;
  for (const auto& [rule_name, rule] : weight_rules(weight, square)) {
    auto net = std::make_shared<FunctionNet>();
    const at::Tensor w = net->register_parameter("weight", weight.clone()),
                     b = net->register_parameter("bias", bias.clone());
    net->body = [=, rule = rule](const at::Tensor& v) { return call(v, rule(w), b); };
    all.push_back({name + ", " + rule_name, net, torch::randn(x_sizes)});
  }
  return all;
}

std::vector<ComputedNet> computed_nets() {
  using T = at::Tensor;
  torch::manual_seed(12);
  std::vector<ComputedNet> all;
  const auto add = [&](const std::string& name, at::IntArrayRef x, at::IntArrayRef sizes, bool square,
                       const auto& call) {
    for (ComputedNet& one : nets_of(name, x, sizes, square, call)) all.push_back(std::move(one));
  };
  add("linear", {2, 6}, {6, 6}, true, [](const T& x, const T& w, const T& b) { return at::linear(x, w, b); });
  add("linear of 3", {2, 3, 5}, {4, 5}, false,
      [](const T& x, const T& w, const T& b) { return at::linear(x, w, b); });
  add("linear with a computed bias", {2, 5}, {4, 5}, false,
      [](const T& x, const T& w, const T& b) { return at::linear(x, w, b * 2 + 1); });
  add("matmul", {2, 5}, {4, 5}, false,
      [](const T& x, const T& w, const T& b) { return at::matmul(x, w.t()) + b; });
  add("addmm", {2, 6}, {6, 6}, true, [](const T& x, const T& w, const T& b) { return at::addmm(b, x, w); });
  add("conv2d", {2, 4, 6, 5}, {4, 4, 3, 3}, true,
      [](const T& x, const T& w, const T& b) { return at::conv2d(x, w, b, 1, 1); });
  add("conv1d", {2, 4, 7}, {3, 4, 3}, false,
      [](const T& x, const T& w, const T& b) { return at::conv1d(x, w, b); });
  add("conv2d of groups", {2, 4, 6, 5}, {4, 1, 3, 3}, false,
      [](const T& x, const T& w, const T& b) { return at::conv2d(x, w, b, 1, 1, 1, 4); });
  add("conv_transpose2d", {2, 4, 4, 3}, {4, 4, 2, 2}, true,
      [](const T& x, const T& w, const T& b) { return at::conv_transpose2d(x, w, b, 2); });
  return all;
}

/// A layer with a stored weight before it.
void add_stem(ComputedNet& one) {
  const bool image = one.x.dim() == 4;
  const int64_t size = one.x.size(image ? 1 : -1);
  const at::Tensor w = one.net->register_parameter(
      "stem", image ? torch::randn({size, size, 1, 1}) : torch::randn({size, size}));
  one.net->body = [=, body = one.net->body](const at::Tensor& v) {
    return body(image ? at::conv2d(v, w) : at::linear(v, w));
  };
}

/// Computes by the rules of the format's reference kernels. Images of four dimensions may lie either way.
at::Tensor run_file(const std::string& bytes, const at::Tensor& x, const at::Tensor& right) {
  const auto file = read_tflite(bytes);
  const at::Tensor made = TfliteRun(*file).run({channels_last(x)}).at(0);
  if (made.dim() != 4 || relative_difference(made, right) < 1e-3) return made;
  return made.permute({0, 3, 1, 2});
}

}  // namespace

TEST(ExportTfliteComputed, FloatFilesGiveWhatTheGraphGives) {
  const torch::NoGradGuard no_grad;
  for (const ComputedNet& one : computed_nets()) {
    SCOPED_TRACE(one.name);
    const auto module = captured_net(one.net, one.x);
    const at::Tensor right = one.net->forward(one.x);
    std::string bytes;
    ASSERT_NO_THROW(bytes = exchange::export_tflite(*module, {.batch = 2}));
    EXPECT_LE(relative_difference(run_file(bytes, one.x, right), right), 2e-6);
  }
}

/// Norms, tables, slopes and products of other kinds.
TEST(ExportTfliteComputed, OtherCallsReadThem) {
  using T = at::Tensor;
  const torch::NoGradGuard no_grad;
  torch::manual_seed(13);
  const T row = torch::rand({4}) + 0.5, mask = torch::tensor({1.F, 0.F, 1.F, 1.F}), mean = torch::randn({4});
  const T square = torch::randn({4, 4}), kernel = torch::randn({4, 4, 2, 2}),
          image = torch::randn({2, 4, 5, 3}), rows = torch::randn({2, 4}), sequence = torch::randn({2, 4, 6});
  const auto normed = [=](const T& x) {
    return at::batch_norm(x, row * mask, mean + 1, mean * 2, row.square(), false, 0.1, 1e-5, false);
  };
  const std::vector<std::tuple<std::string, std::function<T(const T&)>, T>> forms = {
      {"batch_norm", normed, image},
      {"batch_norm behind a layer",
       [=](const T& x) {
         return normed(at::conv2d(x, kernel * mask.view({1, 4, 1, 1})));
       },
       image},
      {"batch_norm behind a transposed layer",
       [=](const T& x) { return normed(at::conv_transpose2d(x, kernel / kernel.norm(), row, 2)); }, image},
      {"conv_transpose1d",
       [=](const T& x) { return at::conv_transpose1d(x, kernel.select(3, 0) * 0.5, row.log(), 3); },
       sequence},
      {"layer_norm", [=](const T& x) { return at::layer_norm(x, {4}, row * mask, mean - 1); }, rows},
      {"group_norm", [=](const T& x) { return at::group_norm(x, 2, row * mask, mean - 1); }, image},
      {"prelu", [=](const T& x) { return at::prelu(x, row.log().abs()); }, image},
      {"matmul", [=](const T& x) { return at::matmul(x, square * mask); }, rows},
      {"matmul from the left", [=](const T& x) { return at::matmul(square.t() * mask, x); }, sequence},
      {"einsum",
       [=](const T& x) {
         return at::einsum("bi,oi->bo", {x, square.tril()});
       },
       rows},
      {"linear of stacked weights",
       [=](const T& x) {
         return at::linear(x, at::cat({square, square.t() * mask}), at::cat({row, mean}));
       },
       rows},
      {"embedding", [=](const T& x) { return at::embedding(square * mask, (x > 0).to(at::kLong)) * 1; },
       rows},
      {"mul",
       [=](const T& x) {
         return x * row.exp().view({4, 1, 1});
       },
       image}};
  for (const auto& [name, body, x] : forms) {
    SCOPED_TRACE(name);
    const T right = body(x);
    std::string bytes;
    ASSERT_NO_THROW(bytes = exchange::export_tflite(*captured_function(body, x), {.batch = 2}));
    EXPECT_LE(relative_difference(run_file(bytes, x, right), right), 5e-6);
  }
}

TEST(ExportTfliteComputed, Int8FilesGiveWhatTheGraphGives) {
  const torch::NoGradGuard no_grad;
  for (ComputedNet& one : computed_nets()) {
    SCOPED_TRACE(one.name);
    add_stem(one);
    const auto prepared = quant::prepare(captured_net(one.net, one.x), quant::Recipe::tflite_int8());
    prepared->forward(one.x);
    const auto module = quant::convert(prepared);
    const at::Tensor right = module->forward(one.x);
    EXPECT_LE(relative_difference(right, one.net->forward(one.x)), 0.1);
    std::string bytes;
    ASSERT_NO_THROW(bytes = exchange::export_tflite(*module, {.batch = 2}));
    // Sums of integers are exact; a result at the middle of two codes may be the other one.
    EXPECT_LE(relative_difference(run_file(bytes, one.x, right), right), 0.02);
  }
}

}  // namespace ulp::test
