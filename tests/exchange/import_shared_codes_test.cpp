// Tensors of ONNX files that several nodes read in different ways: each reader gets its own numbers.
#include <torch/torch.h>

#include "onnx_case.h"

namespace ulp::test {

namespace {

at::Tensor codes_of(const std::vector<int64_t>& values, at::ScalarType type = at::kChar) {
  return torch::tensor(values, at::kLong).to(type);
}

}  // namespace

TEST(ImportSharedCodes, NumbersBesideOthersLeaveTheTensorsOfTheFileAlone) {
  // The numbers of "b_quantized" would be called "b": another tensor of the file, which a layer reads.
  for (const std::string codes : {"b", "b_quantized"}) {
    OnnxCase file;
    file.input("x", {-1, 3}).tensor("s", torch::tensor(0.5F)).tensor("z", torch::tensor(0, torch::kChar));
    file.tensor(codes, codes_of({2, 4, 6}));
    if (codes != "b") file.tensor("b", torch::tensor({100.0F, 200.0F, 300.0F}));
    file.node("DequantizeLinear", {codes, "s", "z"}, {"n"}).node("Add", {"x", "n"}, {"sum"});
    if (codes == "b") {  // the codes themselves, in another type
      file.node("Cast", {"x"}, {"xi"}, {{"to", 3}}).node("Add", {"xi", "b"}, {"whole"});
      file.node("Cast", {"whole"}, {"other"}, {{"to", 1}});
    } else {
      file.node("Add", {"x", "b"}, {"other"});
    }
    file.node("Sub", {"other", "sum"}, {"y"}).output("y");
    const at::Tensor x = torch::tensor({{1.0F, 2.0F, 3.0F}}), numbers = torch::tensor({1.0F, 2.0F, 3.0F});
    const at::Tensor other =
        codes == "b" ? torch::tensor({{3.0F, 6.0F, 9.0F}}) : x + torch::tensor({100, 200, 300});
    EXPECT_TRUE(torch::equal(file.run({x}), other - (x + numbers))) << codes;
  }
}

TEST(ImportSharedCodes, TwoStepsOfOneTensorOfCodes) {
  const at::Tensor codes = codes_of({1, -2, 3, 4, 5, -6}).view({2, 3}), x = torch::tensor({{1.0F, 2.0F}});
  for (const exchange::QdqForm form : {exchange::QdqForm::codes, exchange::QdqForm::fake}) {
    OnnxCase file;
    file.input("x", {-1, 2})
        .tensor("w", codes)
        .tensor("one", torch::tensor(0.5F))
        .tensor("other", torch::tensor(2.0F));
    file.tensor("z", torch::tensor(0, torch::kChar));
    file.node("DequantizeLinear", {"w", "one", "z"}, {"a"})
        .node("DequantizeLinear", {"w", "other", "z"}, {"b"});
    file.node("MatMul", {"x", "a"}, {"p"}).node("MatMul", {"x", "b"}, {"q"}).node("Sub", {"p", "q"}, {"y"});
    EXPECT_TRUE(torch::allclose(file.output("y").run({x}, 18, {.qdq = form}),
                                x.matmul(codes.to(torch::kFloat) * -1.5)));
  }
}

TEST(ImportSharedCodes, TwoStepsOfOneTensorOfBlocks) {
  torch::manual_seed(1);
  const at::Tensor codes = torch::randint(-8, 8, {32, 4}).to(at::kChar), x = torch::randn({2, 32});
  const at::Tensor one = torch::rand({2, 4}) + 0.5, other = torch::rand({2, 4}) + 0.5;
  OnnxCase file;
  file.input("x", {-1, 32}).tensor("w", codes).tensor("one", one).tensor("other", other);
  const OnnxAttributes blocks = {{"axis", 0}, {"block_size", 16}};
  file.node("DequantizeLinear", {"w", "one"}, {"a"}, blocks)
      .node("DequantizeLinear", {"w", "other"}, {"b"}, blocks);
  file.node("MatMul", {"x", "a"}, {"p"}).node("MatMul", {"x", "b"}, {"q"}).node("Sub", {"p", "q"}, {"y"});
  const at::Tensor scale = (one - other).repeat_interleave(16, 0);
  EXPECT_LT(share_off(file.output("y").run({x}, 21), x.matmul(codes.to(torch::kFloat) * scale)), 1e-5);
}

TEST(ImportSharedCodes, AScaleAndAZeroPointAreAlsoRead) {
  OnnxCase file;
  file.input("x", {-1, 2}).tensor("s", torch::tensor({0.5F, 2.0F})).tensor("z", codes_of({3, -1}));
  file.node("QuantizeLinear", {"x", "s", "z"}, {"q"}).node("DequantizeLinear", {"q", "s", "z"}, {"d"});
  file.node("Sub", {"q", "z"}, {"moved"}).node("Cast", {"moved"}, {"numbers"}, {{"to", 1}});
  file.node("Mul", {"numbers", "s"}, {"again"}).node("Sub", {"d", "again"}, {"y"}).output("y");
  const at::Tensor x = torch::tensor({{1.3F, -5.0F}, {200.0F, 7.0F}});
  const at::Tensor y = file.run({x}, 21);
  EXPECT_EQ(y.scalar_type(), torch::kFloat);
  EXPECT_TRUE(torch::equal(y.select(0, 0), torch::zeros({2})));
}

}  // namespace ulp::test
