// Products of ONNX files beside the formula: every form of their operands, and weights that several layers read.
#include <torch/torch.h>

#include "error_of.h"
#include "onnx_case.h"

namespace ulp::test {

namespace {

/// Sizes that a Gemm's C may have.
std::vector<std::vector<int64_t>> sizes_of_c(int64_t rows, int64_t columns) {
  return {{columns}, {1, columns}, {1}, {}, {1, 1}, {rows, columns}, {rows, 1}};
}

/// alpha A B + beta C of a draw; sometimes a layer before it reads B, too.
void check_drawn_gemm(Drawn& drawn) {
  const int64_t rows = drawn.whole(1, 3), in = drawn.whole(1, 4), out = drawn.one_of<int64_t>({1, 2, in, in});
  const bool turned_a = drawn.whole(0, 3) == 0, turned_b = drawn.whole(0, 1) == 0;
  const bool shared = in == out && drawn.whole(0, 1) == 0, shared_turned = drawn.whole(0, 1) == 0;
  const float alpha = drawn.one_of<float>({1, 1, 0.5F}), beta = drawn.one_of<float>({1, 1, 2});
  const int64_t form = drawn.whole(-1, 6);
  const bool computed = form >= 0 && drawn.whole(0, 3) == 0;
  const at::Tensor x = torch::randn(turned_a ? at::IntArrayRef{in, rows} : at::IntArrayRef{rows, in});
  const at::Tensor b = torch::randn(turned_b ? at::IntArrayRef{out, in} : at::IntArrayRef{in, out});
  const at::Tensor c =
      form < 0 ? at::Tensor() : torch::randn(sizes_of_c(rows, out)[static_cast<size_t>(form)]);
  OnnxCase file;
  file.input("x", x.sizes().vec()).tensor("b", b);
  at::Tensor a = x;
  std::string first = "x";
  if (shared && !turned_a) {
    file.tensor("row", torch::ones({out}))
        .node("Gemm", {"x", "b", "row"}, {"before"}, {{"transB", shared_turned ? 1 : 0}});
    a = x.matmul(shared_turned ? b.t() : b) + 1;
    first = "before";
  }
  std::vector<std::string> inputs = {first, "b"};
  if (form >= 0) {
    file.tensor("c", c);
    if (computed)
      file.node("ReduceMax", {"x"}, {"top"}, {{"keepdims", 0}}).node("Mul", {"c", "top"}, {"made"});
    inputs.push_back(computed ? "made" : "c");
  }
  file.node("Gemm", inputs, {"y"},
            {{"alpha", alpha}, {"beta", beta}, {"transA", turned_a ? 1 : 0}, {"transB", turned_b ? 1 : 0}});
  file.output("y");
  at::Tensor right = (turned_a ? a.t() : a).matmul(turned_b ? b.t() : b) * alpha;
  if (form >= 0) right = right + (computed ? c * x.max() : c) * beta;
  EXPECT_LT(share_off(file.run({x}), right), 1e-5)
      << rows << " x " << in << " x " << out << ", C " << form << ", transA " << turned_a << ", transB "
      << turned_b << ", shared " << shared;
}

}  // namespace

TEST(ImportGemm, GivesTheFormulaForEveryFormOfItsOperands) {
  torch::manual_seed(1);
  Drawn drawn(1);
  for (int i = 0; i < 120; ++i) check_drawn_gemm(drawn);
}

TEST(ImportGemm, ABiasOfOneRowIsALinearLayers) {
  const at::Tensor b = torch::arange(9).to(torch::kFloat).view({3, 3}),
                   c = torch::tensor({{1.0F, 2.0F, 3.0F}});
  OnnxCase file;
  file.input("x", {-1, 3}).tensor("fc.weight", b).tensor("fc.bias", c);
  file.node("Gemm", {"x", "fc.weight", "fc.bias"}, {"y"}).output("y");
  const auto module = file.import();
  EXPECT_TRUE(torch::equal(module->forward(torch::eye(3)), b + c));
  EXPECT_EQ(module->named_parameters()["fc.bias"].sizes(), (std::vector<int64_t>{3}));
  size_t layers = 0;
  for (const auto& node : module->graph().nodes()) layers += node->is("aten::linear");
  EXPECT_EQ(layers, 1);
}

TEST(ImportGemm, AWeightOfTwoLayersIsOneParameter) {
  torch::manual_seed(2);
  const at::Tensor w = torch::randn({3, 3}), x = torch::randn({2, 3});
  OnnxCase file;
  file.input("x", {-1, 3}).tensor("w", w);
  file.node("MatMul", {"x", "w"}, {"a"}).node("MatMul", {"a", "w"}, {"b"});
  file.node("MatMul", {"w", "w"}, {"square"}).node("MatMul", {"b", "square"}, {"y"}).output("y");
  const auto module = file.import();
  EXPECT_EQ(module->named_parameters().size(), 1U);
  EXPECT_LT(share_off(module->forward(x), x.matmul(w).matmul(w).matmul(w.matmul(w))), 1e-5);
}

TEST(ImportGemm, WideLayersAndManyOfThemAreRead) {
  torch::manual_seed(3);
  const at::Tensor w = torch::randn({1, 30'000}), x = torch::randn({2, 30'000});
  OnnxCase wide;
  wide.input("x", {-1, 30'000}).tensor("w", w).node("Gemm", {"x", "w"}, {"y"}, {{"transB", 1}}).output("y");
  EXPECT_LT(share_off(wide.run({x}), x.matmul(w.t())), 1e-4);
  OnnxCase deep;
  deep.input("x", {-1, 16, 1024}).tensor("w", torch::randn({1024, 1024}) / 32);
  std::string last = "x";
  for (int i = 0; i < 48; ++i) {
    deep.node("MatMul", {last, "w"}, {"y" + std::to_string(i)});
    last = "y" + std::to_string(i);
  }
  EXPECT_TRUE(deep.output(last).run({torch::randn({1, 16, 1024})}).isfinite().all().item<bool>());
}

TEST(ImportGemm, TypesThatDoNotFitAreRefusedInOurWords) {
  OnnxCase file;
  file.input("x", {2, 3}).tensor("w", torch::ones({4, 5})).node("MatMul", {"x", "w"}, {"y"}).output("y");
  EXPECT_ERROR(file.import(),
               "node 'the_MatMul' (MatMul): expected inputs whose types and sizes fit the operator");
}

}  // namespace ulp::test
