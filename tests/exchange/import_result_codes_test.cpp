// Codes of ONNX files that leave the network, or that other operators read as whole numbers: engines hold them
// as numbers with a scale, and signed ones moved by 128.
#include <torch/torch.h>

#include "error_of.h"
#include "onnx_case.h"
#include "ulp/lower/partitioned_model.h"

namespace ulp::test {

namespace {

/// The results of the graph, which those of engines with LibTorch have to be.
std::vector<at::Tensor> expect_same_in_pieces(const OnnxCase& file, const at::Tensor& x, int64_t opset = 18) {
  const torch::NoGradGuard no_grad;
  const auto module = file.import(opset);
  std::vector<at::Tensor> graph = module->forward_all({x});
  const std::vector<at::Tensor> pieces = lower_partitioned(*module).run({x});
  EXPECT_EQ(pieces.size(), graph.size());
  for (size_t i = 0; i < std::min(graph.size(), pieces.size()); ++i) {
    EXPECT_EQ(pieces[i].scalar_type(), graph[i].scalar_type()) << "result " << i;
    EXPECT_TRUE(pieces[i].equal(graph[i])) << "result " << i << ":\n" << pieces[i] << "\n" << graph[i];
  }
  return graph;
}

OnnxCase quantized_rows(at::ScalarType type) {
  OnnxCase file;
  file.input("x", {-1, 3}).tensor("s", torch::tensor(0.25F)).tensor("z", torch::tensor(5, type));
  file.node("Relu", {"x"}, {"r"}).node("QuantizeLinear", {"r", "s", "z"}, {"q"});
  return file.node("DequantizeLinear", {"q", "s", "z"}, {"d"}).output("d").output("q");
}

const at::Tensor kRows = torch::tensor({{-1.0F, 2.0F, 31.0F}, {0.5F, -0.25F, 40.0F}});

}  // namespace

TEST(ImportResultCodes, SignedAndUnsignedOnesAreThoseOfTheGraph) {
  const auto bytes = expect_same_in_pieces(quantized_rows(torch::kByte), kRows);
  EXPECT_TRUE(bytes.at(1).equal(torch::tensor({{5, 13, 129}, {7, 5, 165}}, torch::kByte)));
  const auto chars = expect_same_in_pieces(quantized_rows(torch::kChar), kRows);
  EXPECT_TRUE(chars.at(1).equal(torch::tensor({{5, 13, 127}, {7, 5, 127}}, torch::kChar)));
}

TEST(ImportResultCodes, MovedOnesStayCodes) {
  for (const at::ScalarType type : {torch::kByte, torch::kChar}) {
    OnnxCase file = quantized_rows(type);
    file.tensor("shape", torch::tensor({-1, 3, 1}, torch::kLong));
    file.node("Reshape", {"q", "shape"}, {"t"}).output("t");
    const auto results = expect_same_in_pieces(file, kRows);
    EXPECT_TRUE(results.at(2).flatten().equal(results.at(1).flatten()));
  }
}

TEST(ImportResultCodes, ArithmeticOnThemIsThatOfWholeNumbers) {
  for (const at::ScalarType type : {torch::kByte, torch::kChar}) {
    OnnxCase file = quantized_rows(type);
    file.node("Abs", {"q"}, {"a"}).output("a").node("Concat", {"q", "a"}, {"c"}, {{"axis", 1}}).output("c");
    file.node("Cast", {"q"}, {"f"}, {{"to", 1}}).output("f");
    const auto results = expect_same_in_pieces(file, kRows);
    EXPECT_TRUE(results.at(2).equal(results.at(1)));
    EXPECT_TRUE(results.at(4).equal(results.at(1).to(torch::kFloat)));
  }
}

TEST(ImportResultCodes, AnotherZeroPointBehindThemCounts) {
  for (const at::ScalarType type : {torch::kByte, torch::kChar}) {
    OnnxCase file = quantized_rows(type);
    file.tensor("other", torch::tensor(7, type)).node("DequantizeLinear", {"q", "s", "other"}, {"o"});
    const auto results = expect_same_in_pieces(file.node("Neg", {"o"}, {"n"}).output("n"), kRows);
    EXPECT_TRUE(results.at(2).equal(0.5 - results.at(0)));
  }
}

/// The engine has sequences as images of height 1, in which another dimension is the last.
TEST(ImportResultCodes, ScalesAlongTheLastDimensionOfSequences) {
  torch::manual_seed(1);
  OnnxCase file;
  file.input("x", {-1, 2, 4}).tensor("w", torch::randn({3, 2, 2}));
  file.tensor("s", torch::tensor({0.25F, 0.5F, 0.125F})).tensor("z", torch::tensor({5, 7, 9}, torch::kByte));
  file.node("Conv", {"x", "w"}, {"c"}).node("QuantizeLinear", {"c", "s", "z"}, {"q"}, {{"axis", 2}});
  file.node("DequantizeLinear", {"q", "s", "z"}, {"y"}, {{"axis", 2}}).output("y");
  const at::Tensor x = torch::randn({2, 2, 4});
  const torch::NoGradGuard no_grad;
  const auto module = file.import();
  EXPECT_LE(share_off(lower_partitioned(*module).run({x}).at(0), module->forward_all({x}).at(0)), 1e-6);
}

}  // namespace ulp::test
