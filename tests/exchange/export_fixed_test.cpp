// What a model computes of its parameters by calls that a format has not: its numbers are in the file.
#include <torch/torch.h>

#include <string>
#include <utility>
#include <vector>

#include "captured_function.h"
#include "error_of.h"
#include "tflite_run.h"
#include "ulp/exchange/export_onnx.h"
#include "ulp/exchange/export_pt2.h"
#include "ulp/exchange/export_tflite.h"
#include "ulp/exchange/import_onnx.h"
#include "ulp/exchange/import_pt2.h"

namespace ulp::test {

namespace {

using MatrixCall = std::function<at::Tensor(const at::Tensor& matrix)>;

const std::vector<std::pair<std::string, MatrixCall>> kMatrixCalls = {
    {"slogdet", [](const at::Tensor& m) { return std::get<1>(torch::slogdet(m)); }},
    {"both of slogdet",
     [](const at::Tensor& m) {
       const auto [sign, logarithm] = torch::slogdet(m.to(at::kDouble));
       return (sign * logarithm).to(at::kFloat);
     }},
    {"inverse", [](const at::Tensor& m) { return torch::inverse(m); }},
    {"det", [](const at::Tensor& m) { return torch::det(m); }},
    {"cholesky", [](const at::Tensor& m) { return torch::linalg_cholesky(m.matmul(m.t())); }},
    {"solve", [](const at::Tensor& m) { return torch::linalg_solve(m, m.tanh()); }}};

std::shared_ptr<FunctionNet> net_with_matrix(const MatrixCall& call) {
  auto net = std::make_shared<FunctionNet>();
  const at::Tensor matrix = net->register_parameter("matrix", torch::randn({4, 4}) + 3 * torch::eye(4));
  net->body = [=](const at::Tensor& x) {
    const at::Tensor made = call(matrix.unsqueeze(2).squeeze());
    return made.dim() == 0 ? x * made : x.matmul(made);
  };
  return net;
}

TEST(ExportFixed, DeterminantsAndInversesOfParametersAreNumbers) {
  torch::manual_seed(7);
  const torch::NoGradGuard no_grad;
  for (const auto& [name, call] : kMatrixCalls) {
    SCOPED_TRACE(name);
    const auto net = net_with_matrix(call);
    const at::Tensor x = torch::randn({4, 4}), other = torch::randn({4, 4});
    const auto module = captured_net(net, x);
    const auto back = exchange::import_onnx(exchange::export_onnx(*module), "model.onnx");
    EXPECT_LE(relative_difference(back->forward(other), module->forward(other)), 1e-6);
    const auto file = read_tflite(exchange::export_tflite(*module, {.batch = 4}));
    EXPECT_LE(relative_difference(TfliteRun(*file).run({other}).at(0), module->forward(other)), 1e-6);
    EXPECT_TRUE(exchange::import_pt2(exchange::export_pt2(*module), "model.pt2")
                    ->forward(other)
                    .equal(module->forward(other)));
  }
}

/// Numbers of matrices that follow the input are not in the file.
TEST(ExportFixed, ThoseOfComputedMatricesAreRefusedByName) {
  torch::manual_seed(8);
  const torch::NoGradGuard no_grad;
  const auto module = captured_function(
      [](const at::Tensor& x) { return std::get<1>(torch::slogdet(x + 3 * torch::eye(4))); },
      torch::randn({2, 4, 4}));
  EXPECT_TRUE(contains(error_of([&] { exchange::export_onnx(*module); }), "aten::slogdet"));
  EXPECT_TRUE(contains(error_of([&] { exchange::export_tflite(*module); }), "aten::slogdet"));
}

/// Rotations of pairs by complex numbers, whose table the model holds.
struct ComplexTurns : torch::nn::Module {
  at::Tensor table;
  bool is_conj;
  explicit ComplexTurns(bool conjugate) : is_conj(conjugate) {
    const at::Tensor angles = torch::outer(torch::arange(6), torch::rand({2})).to(at::kFloat);
    table = torch::polar(torch::ones_like(angles), angles);
    if (is_conj) table = table.conj();
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor pairs = torch::view_as_complex(x.reshape({x.size(0), x.size(1), 2, 2}));
    const at::Tensor turned = pairs * table.slice(0, 0, x.size(1));
    const at::Tensor back = torch::view_as_real(turned.resolve_conj()).flatten(2);
    return torch::repeat_interleave(back, 3, 1) +
           torch::repeat_interleave(back, 3, -1).sum(-1, true).sum(1, true);
  }
};

TEST(ExportFixed, ComplexRotationsAndRepeatedElements) {
  torch::manual_seed(9);
  const torch::NoGradGuard no_grad;
  for (const bool conjugate : {false, true}) {
    ComplexTurns model(conjugate);
    const auto module = capture(model, {torch::randn({2, 5, 4})});
    module->eval();
    for (const int64_t batch : {1, 3}) {
      const at::Tensor x = torch::randn({batch, 5, 4});
      const at::Tensor want = model.forward(x);
      const auto onnx = exchange::import_onnx(exchange::export_onnx(*module), "model.onnx");
      EXPECT_LE(relative_difference(onnx->forward(x), want), 1e-6);
      const auto archive = exchange::import_pt2(exchange::export_pt2(*module), "model.pt2");
      EXPECT_TRUE(archive->forward(x).equal(want));
    }
  }
}

TEST(ExportFixed, RepeatedElementsOfEveryForm) {
  torch::manual_seed(10);
  const torch::NoGradGuard no_grad;
  const at::Tensor each = torch::tensor({2, 0, 1, 3});
  const std::vector<std::function<at::Tensor(const at::Tensor&)>> bodies = {
      [](const at::Tensor& x) { return x.repeat_interleave(2, 0); },
      [](const at::Tensor& x) { return x.repeat_interleave(3, 1); },
      [](const at::Tensor& x) { return x.repeat_interleave(2, -1); },
      [](const at::Tensor& x) { return x.repeat_interleave(2); },
      [](const at::Tensor& x) { return x.repeat_interleave(1, 2); },
      [&](const at::Tensor& x) { return x.repeat_interleave(each, 1, 6); },
      [](const at::Tensor& x) { return x.repeat_interleave(torch::tensor({2}), 2, 6); }};
  for (size_t i = 0; i < bodies.size(); ++i) {
    SCOPED_TRACE(i);
    const auto module = captured_function(bodies[i], torch::randn({2, 4, 3}));
    const auto back = exchange::import_onnx(exchange::export_onnx(*module), "model.onnx");
    for (const int64_t batch : {1, 5}) {
      const at::Tensor x = torch::randn({batch, 4, 3});
      EXPECT_TRUE(back->forward(x).equal(bodies[i](x)));
    }
  }
}

}  // namespace

}  // namespace ulp::test
