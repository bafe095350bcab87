// Codes in ONNX files of other writers: QOperator files, products of codes made as they run, weights alone in
// codes, clipped codes, float16 scales, codes of 4 and 2 bits. Scales are powers of two, so that nothing is
// rounded but to codes.
#include <torch/torch.h>

#include "error_of.h"
#include "onnx_case.h"
#include "ulp/lower/evaluate.h"
#include "ulp/lower/lower.h"
#include "ulp/runtime/engine/engine.h"

namespace ulp::test {

namespace {

using exchange::QdqForm;

at::Tensor random_codes(at::IntArrayRef sizes, at::ScalarType type) {
  return type == at::kByte ? torch::randint(0, 256, sizes).to(type)
                           : torch::randint(-128, 128, sizes).to(type);
}

/// round(x / s) + z within a byte.
at::Tensor codes_of(const at::Tensor& x, double scale, int64_t zero) {
  return ((x / scale).round() + static_cast<double>(zero)).clamp(0, 255).to(torch::kByte);
}
at::Tensor numbers_of(const at::Tensor& codes, const at::Tensor& scale, const at::Tensor& zero) {
  return (codes.to(torch::kFloat) - zero.to(torch::kFloat)) * scale;
}

size_t count_of(const graph::Graph& graph, std::string_view op) {
  size_t count = 0;
  for (const auto& node : graph.nodes()) count += node->is(op);
  return count;
}

/// Scale and zero point of input and result.
void add_steps(OnnxCase& file) {
  file.tensor("xs", torch::tensor(0.25F)).tensor("xz", torch::tensor(7, torch::kByte));
  file.tensor("ys", torch::tensor(8.0F)).tensor("yz", torch::tensor(100, torch::kByte));
}

/// MatMul(x, DequantizeLinear(w[in, out], scale[out], zero[out], axis 1)), or with the weight the other way
/// round.
OnnxCase weight_alone(const at::Tensor& w, const at::Tensor& scale, const at::Tensor& zero, bool out_in) {
  OnnxCase file;
  file.input("x", {-1, w.size(out_in ? 1 : 0)}).tensor("w", w).tensor("s", scale).tensor("z", zero);
  file.node("DequantizeLinear", {"w", "s", "z"}, {"d"}, {{"axis", out_in ? 0 : 1}});
  if (out_in) {
    file.node("Gemm", {"x", "d"}, {"y"}, {{"transB", 1}});
  } else {
    file.node("MatMul", {"x", "d"}, {"y"});
  }
  return file.output("y");
}

}  // namespace

TEST(ImportCodeOperators, ConvolutionsOfCodes) {
  torch::manual_seed(1);
  for (const bool by_channel : {false, true}) {
    const at::Tensor x = torch::randn({2, 3, 6, 6}) * 20, w = random_codes({4, 3, 3, 3}, at::kChar);
    const at::Tensor scale = by_channel ? torch::tensor({0.5F, 0.25F, 0.125F, 1.0F}) : torch::tensor(0.5F);
    const at::Tensor bias = torch::randint(-2000, 2000, {4}).to(torch::kInt);
    OnnxCase file;
    add_steps(file);
    file.input("x", {-1, 3, 6, 6})
        .tensor("w", w)
        .tensor("ws", scale)
        .tensor("wz", torch::tensor(0, torch::kChar))
        .tensor("b", bias);
    file.node("QuantizeLinear", {"x", "xs", "xz"}, {"q"});
    file.node("QLinearConv", {"q", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"}, {"c"},
              {{"pads", std::vector<int64_t>{1, 1, 1, 1}}});
    file.node("MaxPool", {"c"}, {"m"},
              {{"kernel_shape", std::vector<int64_t>{2, 2}}, {"strides", std::vector<int64_t>{2, 2}}});
    file.node("QLinearGlobalAveragePool", {"m", "ys", "yz", "ys", "yz"}, {"g"}, {{"channels_last", 0}},
              "com.microsoft");
    file.node("DequantizeLinear", {"g", "ys", "yz"}, {"y"}).output("y");
    const auto module = file.import();
    const at::Tensor a = (codes_of(x, 0.25, 7).to(torch::kFloat) - 7) * 0.25;
    const at::Tensor of_rows = scale.reshape({-1}).expand({4});
    const at::Tensor layer = torch::conv2d(a, w.to(torch::kFloat) * of_rows.view({4, 1, 1, 1}),
                                           bias.to(torch::kFloat) * of_rows * 0.25, 1, 1);
    const at::Tensor pooled = torch::max_pool2d(codes_of(layer, 8, 100).to(torch::kFloat) - 100, 2);
    const at::Tensor right = pooled.mean(at::IntArrayRef{2, 3}, true).round() * 8;
    EXPECT_LT((module->forward(x) - right).abs().max().item<double>(), 8.01) << by_channel;  // ties of means
    EXPECT_LT((module->forward(x) - right).abs().mean().item<double>(), 1) << by_channel;
    EXPECT_EQ(count_of(module->graph(), "aten::conv2d"), 1);
    runtime::Engine engine(lower(*module));
    EXPECT_LT((run_engine_all(engine, {x})[0] - right).abs().max().item<double>(), 8.01) << by_channel;
  }
}

TEST(ImportCodeOperators, LinearLayersOverThreeDimensionsAndTheirQuantizedBiases) {
  torch::manual_seed(3);
  const at::Tensor x = torch::randn({2, 5, 8}) * 20, w = random_codes({8, 6}, at::kChar),
                   bias = random_codes({6}, at::kChar);
  OnnxCase file;
  add_steps(file);
  file.input("x", {-1, 5, 8}).tensor("w", w).tensor("ws", torch::tensor(0.5F)).tensor("b", bias);
  file.tensor("wz", torch::tensor(0, torch::kChar)).tensor("bs", torch::tensor(0.5F));
  file.node("QuantizeLinear", {"x", "xs", "xz"}, {"q"}).node("DequantizeLinear", {"q", "xs", "xz"}, {"a"});
  file.node("DequantizeLinear", {"w", "ws", "wz"}, {"wd"}).node("MatMul", {"a", "wd"}, {"m"});
  file.node("QuantizeLinear", {"m", "ys", "yz"}, {"mq"}).node("DequantizeLinear", {"mq", "ys", "yz"}, {"md"});
  file.node("DequantizeLinear", {"b", "bs", "wz"}, {"bd"}).node("Add", {"md", "bd"}, {"s"});
  file.node("QuantizeLinear", {"s", "ys", "yz"}, {"sq"}).node("DequantizeLinear", {"sq", "ys", "yz"}, {"y"});
  const auto module = file.output("y").import();
  const auto rounded = [](const at::Tensor& one, double scale, int64_t zero) {
    return (codes_of(one, scale, zero).to(torch::kFloat) - zero) * scale;
  };
  const at::Tensor product = torch::matmul(rounded(x, 0.25, 7), w.to(torch::kFloat) * 0.5);
  const at::Tensor right = rounded(rounded(product, 8, 100) + bias.to(torch::kFloat) * 0.5, 8, 100);
  EXPECT_TRUE(torch::equal(module->forward(x), right));
  runtime::Engine engine(lower(*module));
  EXPECT_TRUE(torch::equal(run_engine_all(engine, {x})[0], right));
}

TEST(ImportCodeOperators, ProductsAndSumsOfCodes) {
  torch::manual_seed(2);
  const at::Tensor x = torch::randn({3, 8}) * 20, w = random_codes({8, 5}, at::kChar);
  const at::Tensor scale = torch::tensor({0.5F, 0.25F, 0.125F, 1.0F, 2.0F});
  OnnxCase file;
  add_steps(file);
  file.input("x", {-1, 8}).tensor("w", w).tensor("ws", scale).tensor("wz", torch::zeros({5}, torch::kChar));
  file.tensor("as", torch::tensor(16.0F)).tensor("az", torch::tensor(3, torch::kByte));
  file.node("QuantizeLinear", {"x", "xs", "xz"}, {"q"});
  file.node("QLinearMatMul", {"q", "xs", "xz", "w", "ws", "wz", "ys", "yz"}, {"p"});
  file.node("QLinearAdd", {"p", "ys", "yz", "p", "ys", "yz", "as", "az"}, {"t"}, {}, "com.microsoft");
  file.node("DequantizeLinear", {"t", "as", "az"}, {"y"}).output("y");
  const at::Tensor a = (codes_of(x, 0.25, 7).to(torch::kFloat) - 7) * 0.25;
  const at::Tensor p = (codes_of(a.matmul(w.to(torch::kFloat) * scale), 8, 100).to(torch::kFloat) - 100) * 8;
  const at::Tensor right = (codes_of(p + p, 16, 3).to(torch::kFloat) - 3) * 16;
  EXPECT_TRUE(torch::equal(file.run({x}), right));
  EXPECT_EQ(count_of(file.import()->graph(), "aten::linear"), 1);
}

TEST(ImportCodeOperators, GemmsWithABiasOfSums) {
  torch::manual_seed(3);
  const at::Tensor x = torch::randn({3, 8}) * 20, w = random_codes({5, 8}, at::kChar),
                   bias = torch::randint(-900, 900, {5}).to(torch::kInt);
  OnnxCase file;
  add_steps(file);
  file.input("x", {-1, 8})
      .tensor("w", w)
      .tensor("ws", torch::tensor(0.5F))
      .tensor("wz", torch::tensor(0, torch::kChar))
      .tensor("b", bias);
  file.node("QuantizeLinear", {"x", "xs", "xz"}, {"q"});
  file.node("QGemm", {"q", "xs", "xz", "w", "ws", "wz", "b", "", ""}, {"y"}, {{"transB", 1}}, "com.microsoft")
      .output("y");
  const at::Tensor a = (codes_of(x, 0.25, 7).to(torch::kFloat) - 7) * 0.25;
  EXPECT_TRUE(torch::equal(file.run({x}), a.matmul(w.t().to(torch::kFloat) * 0.5) + bias * 0.125));
}

TEST(ImportCodeOperators, LayersThatQuantizeAsTheyRun) {
  torch::manual_seed(4);
  const at::Tensor x = torch::randn({3, 8}), w = random_codes({8, 5}, at::kChar), bias = torch::randn({5});
  for (const bool by_channel : {false, true}) {
    const at::Tensor scale = by_channel ? torch::rand({5}) + 0.1 : torch::tensor(0.5F);
    OnnxCase file;
    file.input("x", {-1, 8})
        .tensor("w", w)
        .tensor("ws", scale)
        .tensor("wz", torch::tensor(0, torch::kChar))
        .tensor("b", bias);
    file.node("DynamicQuantizeLinear", {"x"}, {"q", "s", "z"})
        .node("MatMulInteger", {"q", "w", "z", "wz"}, {"sums"});
    file.node("Cast", {"sums"}, {"floats"}, {{"to", 1}}).node("Mul", {"s", "ws"}, {"scales"});
    file.node("Mul", {"floats", "scales"}, {"product"}).node("Add", {"product", "b"}, {"y"}).output("y");
    const auto module = file.import();
    EXPECT_EQ(count_of(module->graph(), "ulp::linear_dynamic"), 1);
    const at::Tensor right = x.matmul(w.to(torch::kFloat) * scale) + bias;
    EXPECT_LT(share_off(module->forward(x), right), 0.02) << by_channel;
    runtime::Engine engine(lower(*module));
    EXPECT_TRUE(torch::equal(run_engine_all(engine, {x})[0], module->forward(x))) << by_channel;
  }
}

TEST(ImportCodeOperators, SumsOfProductsOfCodesAreExact) {
  torch::manual_seed(5);
  const at::Tensor a = random_codes({3, 700}, at::kByte), b = random_codes({700, 5}, at::kByte);
  OnnxCase file;
  file.input("a", {-1, 700}, at::kByte)
      .tensor("b", b)
      .tensor("az", torch::tensor(3, torch::kByte))
      .tensor("bz", torch::tensor({1, 2, 3, 4, 255}, torch::kByte));
  file.node("MatMulInteger", {"a", "b", "az", "bz"}, {"y"}).output("y");
  const at::Tensor right =
      (a.to(torch::kInt) - 3).matmul(b.to(torch::kInt) - torch::tensor({1, 2, 3, 4, 255}, torch::kInt));
  EXPECT_TRUE(torch::equal(file.run({a}), right));
  const at::Tensor image = random_codes({1, 2, 5, 5}, at::kByte), w = random_codes({3, 2, 3, 3}, at::kByte);
  OnnxCase conv;
  conv.input("x", {-1, 2, 5, 5}, at::kByte)
      .tensor("w", w)
      .tensor("xz", torch::tensor(9, torch::kByte))
      .tensor("wz", torch::tensor(100, torch::kByte));
  conv.node("ConvInteger", {"x", "w", "xz", "wz"}, {"y"}, {{"pads", std::vector<int64_t>{1, 0, 1, 0}}})
      .output("y");
  const at::Tensor sums =
      torch::conv2d(image.to(torch::kDouble) - 9, w.to(torch::kDouble) - 100, {}, 1, at::IntArrayRef{1, 0});
  EXPECT_TRUE(torch::equal(conv.run({image}), sums.to(torch::kInt)));
}

TEST(ImportCodeOperators, CodesByTheSmallestAndTheLargestNumber) {
  // Results of ONNX Runtime 1.31.1.
  const auto made = [](const std::vector<float>& x, const std::string& result) {
    OnnxCase file;
    file.input("x", {2}).node("DynamicQuantizeLinear", {"x"}, {"q", "s", "z"}).output(result);
    return file.run({torch::tensor(x)});
  };
  EXPECT_TRUE(torch::equal(made({0, 0}, "q"), torch::tensor({0, 0}, torch::kByte)));
  EXPECT_EQ(made({0, 0}, "s").item<float>(), 1);
  EXPECT_TRUE(torch::equal(made({1, 2}, "q"), torch::tensor({127, 255}, torch::kByte)));
  EXPECT_TRUE(torch::equal(made({-1, -2}, "q"), torch::tensor({128, 0}, torch::kByte)));
  EXPECT_EQ(made({-3, 5}, "z").item<int>(), 96);
}

TEST(ImportCodeOperators, WeightsAloneStayInCodes) {
  torch::manual_seed(6);
  for (const at::ScalarType type : {at::kChar, at::kByte}) {
    for (const bool symmetric : {true, false}) {
      for (const bool out_in : {false, true}) {
        const at::Tensor w = random_codes(out_in ? at::IntArrayRef{5, 8} : at::IntArrayRef{8, 5}, type);
        const at::Tensor scale = torch::rand({5}) * 0.01 + 0.01;
        const int64_t middle = type == at::kByte ? 128 : 0;
        const at::Tensor zero =
            symmetric ? torch::full({5}, middle).to(type) : (torch::randint(-40, 40, {5}) + middle).to(type);
        const OnnxCase file = weight_alone(w, scale, zero, out_in);
        const at::Tensor x = torch::randn({3, 8});
        const at::Tensor values =
            out_in ? numbers_of(w, scale.view({5, 1}), zero.view({5, 1})).t() : numbers_of(w, scale, zero);
        const auto module = file.import();
        EXPECT_LT(share_off(module->forward(x), x.matmul(values)), 1e-5) << type << symmetric << out_in;
        EXPECT_EQ(count_of(module->graph(), "ulp::dequantize_weight"), 1);
        runtime::Engine engine(lower(*module));
        EXPECT_LT(share_off(run_engine_all(engine, {x})[0], x.matmul(values)), 1e-5)
            << type << symmetric << out_in;
        EXPECT_LT(share_off(file.run({x}, 18, {.qdq = QdqForm::fake}), x.matmul(values)), 1e-5);
      }
    }
  }
}

TEST(ImportCodeOperators, ClippedCodesAreNarrowerOnes) {
  const auto file = [](bool other_names) {
    OnnxCase made;
    made.input("x", {-1, 4}).tensor("s", torch::tensor(0.5F)).tensor("z", torch::tensor(0, torch::kChar));
    made.tensor("s2", torch::tensor(0.5F)).tensor("z2", torch::tensor(0, torch::kChar));
    made.tensor("low", torch::tensor(-7, torch::kChar)).tensor("high", torch::tensor(7, torch::kChar));
    made.node("QuantizeLinear", {"x", "s", "z"}, {"q"}).node("Clip", {"q", "low", "high"}, {"c"});
    made.node("DequantizeLinear", {"c", other_names ? "s2" : "s", other_names ? "z2" : "z"}, {"y"});
    return made.output("y");
  };
  const at::Tensor x = torch::tensor({{-9.0F, -1.3F, 1.2F, 100.0F}}),
                   right = torch::tensor({{-3.5F, -1.5F, 1.0F, 3.5F}});
  for (const bool other_names : {false, true}) {
    EXPECT_TRUE(torch::equal(file(other_names).run({x}), right));
    const auto trained = file(other_names).import(18, {.qdq = QdqForm::fake});
    EXPECT_EQ(count_of(trained->graph(), "ulp::fake_quantize"), 1);
    EXPECT_TRUE(torch::equal(trained->forward(x), right));
  }
}

TEST(ImportCodeOperators, NumbersHaveTheTypeOfTheirScale) {
  OnnxCase file;
  file.input("x", {-1, 2}, at::kByte)
      .tensor("s", torch::tensor(0.1F).to(torch::kHalf))
      .tensor("z", torch::tensor(3, torch::kByte));
  file.node("DequantizeLinear", {"x", "s", "z"}, {"y"}).output("y");
  const at::Tensor y = file.run({torch::tensor({{3, 200}}, torch::kByte)}, 19);
  EXPECT_EQ(y.scalar_type(), torch::kHalf);
  EXPECT_TRUE(torch::equal(
      y, (torch::tensor({{0.0F, 197.0F}}) * torch::tensor(0.1F).to(torch::kHalf).to(torch::kFloat))
             .to(torch::kHalf)));
}

TEST(ImportCodeOperators, CodesOfFewerBitsKeepTheirRange) {
  // int4: two in a byte; int2: four. The lower bits come first.
  const auto dequantized = [](int64_t type, const std::vector<int64_t>& bytes, int64_t count) {
    OnnxCase file;
    file.input("x", {1})
        .coded("w", type, {count}, torch::tensor(bytes).to(torch::kByte))
        .tensor("s", torch::tensor(1.0F));
    file.node("DequantizeLinear", {"w", "s"}, {"d"}).node("Add", {"d", "x"}, {"y"}).output("y");
    return file.run({torch::zeros({1})}, 25);
  };
  EXPECT_TRUE(torch::equal(dequantized(22, {0x8F, 0x07}, 3), torch::tensor({-1.0F, -8.0F, 7.0F})));
  EXPECT_TRUE(torch::equal(dequantized(21, {0x8F, 0x07}, 3), torch::tensor({15.0F, 8.0F, 7.0F})));
  EXPECT_TRUE(
      torch::equal(dequantized(26, {0b11100100, 0b01}, 5), torch::tensor({0.0F, 1.0F, -2.0F, -1.0F, 1.0F})));
  EXPECT_TRUE(
      torch::equal(dequantized(25, {0b11100100, 0b01}, 5), torch::tensor({0.0F, 1.0F, 2.0F, 3.0F, 1.0F})));
  OnnxCase file;
  file.input("x", {-1, 3})
      .tensor("s", torch::tensor(1.0F))
      .coded("z", 22, {}, torch::tensor({0}, torch::kByte));
  file.node("QuantizeLinear", {"x", "s", "z"}, {"q"}).node("DequantizeLinear", {"q", "s"}, {"y"}).output("y");
  EXPECT_TRUE(torch::equal(file.run({torch::tensor({{-100.0F, 3.0F, 100.0F}})}, 21),
                           torch::tensor({{-8.0F, 3.0F, 7.0F}})));
}

TEST(ImportCodeOperators, ProductsWithBlocksOfOnnxRuntime) {
  torch::manual_seed(7);
  const int64_t rows = 5, columns = 40, size = 16, blocks = 3;
  for (const int64_t bits : {2, 4, 8}) {
    for (const bool has_zero : {false, true}) {
      const int64_t values = int64_t{1} << bits, each = 8 / bits;
      const at::Tensor codes = torch::randint(0, values, {rows, blocks, size}),
                       scale = torch::rand({rows, blocks}) + 0.1;
      const auto packed = [&](const at::Tensor& of_rows) {
        const int64_t count = of_rows.size(-1), padded_to = (count + each - 1) / each * each;
        const at::Tensor parts =
            torch::constant_pad_nd(of_rows, {0, padded_to - count}).unflatten(-1, {-1, each});
        const at::Tensor weights = torch::pow(2, torch::arange(each) * bits);
        return (parts * weights).sum(-1).to(torch::kByte);
      };
      const at::Tensor zero =
          has_zero ? torch::randint(0, values, {rows, blocks}) : torch::full({rows, blocks}, values / 2);
      const at::Tensor w = ((codes - zero.unsqueeze(2)).to(torch::kFloat) * scale.unsqueeze(2))
                               .flatten(1)
                               .narrow(1, 0, columns);
      OnnxCase file;
      file.input("x", {-1, columns})
          .tensor("w", packed(codes))
          .tensor("s", scale.flatten())
          .tensor("b", torch::ones({rows}));
      std::vector<std::string> inputs = {"x", "w", "s", "", "", "b"};
      if (has_zero) {
        file.tensor("z", packed(zero).flatten());
        inputs[3] = "z";
      }
      file.node("MatMulNBits", inputs, {"y"},
                {{"K", columns}, {"N", rows}, {"bits", bits}, {"block_size", size}}, "com.microsoft");
      const at::Tensor x = torch::randn({3, columns});
      EXPECT_LT(share_off(file.output("y").run({x}), x.matmul(w.t()) + 1), 1e-5) << bits << has_zero;
    }
  }
}

}  // namespace ulp::test
