// Operators of ONNX for losses, signals, states of sequences, bits and small types. What is right is
// LibTorch's operator where there is one, else the formula of the operator's page.
#include <torch/torch.h>

#include <cmath>
#include <limits>

#include "error_of.h"
#include "onnx_case.h"
#include "ulp/lower/partitioned_model.h"

namespace ulp::test {

namespace {

constexpr double kNear = 2e-6;  ///< a share of the largest number

/// One node of inputs of these values; an undefined one is left out.
std::vector<at::Tensor> results_of(const std::string& op, const std::vector<at::Tensor>& inputs,
                                   const OnnxAttributes& attributes = {}, size_t outputs = 1,
                                   int64_t opset = 26, size_t stored_from = 100) {
  OnnxCase file;
  std::vector<std::string> names, results;
  std::vector<at::Tensor> given;
  for (size_t i = 0; i < inputs.size(); ++i) {
    names.push_back(inputs[i].defined() ? "x" + std::to_string(i) : "");
    if (!inputs[i].defined()) continue;
    if (i >= stored_from) {
      file.tensor(names.back(), inputs[i]);
    } else {
      file.input(names.back(), inputs[i].sizes().vec(), inputs[i].scalar_type());
      given.push_back(inputs[i]);
    }
  }
  for (size_t i = 0; i < outputs; ++i) results.push_back("y" + std::to_string(i));
  file.node(op, names, results, attributes);
  for (const std::string& one : results) file.output(one);
  const torch::NoGradGuard no_grad;
  return file.import(opset)->forward_all(given);
}

at::Tensor result_of(const std::string& op, const std::vector<at::Tensor>& inputs,
                     const OnnxAttributes& attributes = {}, int64_t opset = 26, size_t stored_from = 100) {
  return results_of(op, inputs, attributes, 1, opset, stored_from).at(0);
}

at::Tensor longs(const std::vector<int64_t>& values) {
  return torch::tensor(values, torch::kLong);
}

/// Unsigned numbers, which LibTorch makes of int64 alone.
at::Tensor unsigned_of(const std::vector<int64_t>& values, at::ScalarType type) {
  return longs(values).to(type);
}

}  // namespace

TEST(ImportLosses, AreLibTorchs) {
  torch::manual_seed(1);
  const at::Tensor scores = torch::randn({3, 5, 2}), classes = torch::randint(0, 5, {3, 2}),
                   weights = torch::rand({5}) + 0.5, logs = scores.log_softmax(1);
  for (const auto& [word, reduction] : std::vector<std::pair<std::string, int64_t>>{
           {"none", at::Reduction::None}, {"mean", at::Reduction::Mean}, {"sum", at::Reduction::Sum}}) {
    const at::Tensor right = at::nll_loss_nd(logs, classes, weights, reduction, 2);
    const OnnxAttributes attributes = {{"reduction", word}, {"ignore_index", 2}};
    EXPECT_LT(share_off(result_of("NegativeLogLikelihoodLoss", {logs, classes, weights}, attributes), right),
              kNear);
    const auto both = results_of("SoftmaxCrossEntropyLoss", {scores, classes.to(torch::kInt), weights},
                                 attributes, /*outputs=*/2);
    EXPECT_LT(share_off(both.at(0), right), kNear);
    EXPECT_LT(share_off(both.at(1), logs), kNear);
  }
  EXPECT_ERROR(result_of("NegativeLogLikelihoodLoss", {logs, classes}, {{"reduction", std::string("max")}}),
               "expected reduction none, mean or sum, got 'max'");
}

TEST(ImportBits, ShiftsByTooMuchLeaveTheSign) {
  const OnnxAttributes left = {{"direction", std::string("LEFT")}},
                       right = {{"direction", std::string("RIGHT")}};
  const at::Tensor x = torch::tensor({-8, 8, -8, 8, 1}, torch::kInt),
                   by = torch::tensor({1, 2, -1, 40, 31}, torch::kInt);
  EXPECT_TRUE(
      torch::equal(result_of("BitShift", {x, by}, right), torch::tensor({-4, 2, -1, 0, 0}, torch::kInt)));
  EXPECT_TRUE(torch::equal(result_of("BitShift", {x, by}, left),
                           torch::tensor({-16, 32, 0, 0, std::numeric_limits<int32_t>::min()}, torch::kInt)));
  for (const at::ScalarType type : {at::kUInt16, at::kUInt32, at::kUInt64}) {
    const auto bits = static_cast<int64_t>(8 * c10::elementSize(type));
    const at::Tensor highest = unsigned_of({int64_t{1} << (bits - 1), -1, -1, 5}, type);
    const at::Tensor moved =
        result_of("BitShift", {highest, unsigned_of({bits - 1, 0, bits - 4, 1}, type)}, right);
    EXPECT_EQ(moved.scalar_type(), type);
    EXPECT_TRUE(torch::equal(moved.to(torch::kLong), unsigned_of({1, -1, 15, 2}, type).to(torch::kLong)))
        << type;
  }
}

TEST(ImportBits, UnsignedNumbersWrapAndAreInOrder) {
  for (const at::ScalarType type : {at::kUInt16, at::kUInt32, at::kUInt64}) {
    const at::Tensor a = unsigned_of({-1, 1, 7}, type), b = unsigned_of({1, -2, 3}, type);
    const auto of = [&](const std::string& op) { return result_of(op, {a, b}); };
    const auto wide = [&](const std::vector<int64_t>& values) {
      return unsigned_of(values, type).to(torch::kLong);
    };
    EXPECT_TRUE(torch::equal(of("Add").to(torch::kLong), wide({0, -1, 10}))) << type;
    EXPECT_TRUE(torch::equal(of("Sub").to(torch::kLong), wide({-2, 3, 4}))) << type;
    EXPECT_TRUE(torch::equal(of("Max").to(torch::kLong), wide({-1, -2, 7}))) << type;
    EXPECT_TRUE(torch::equal(of("Min").to(torch::kLong), wide({1, 1, 3}))) << type;
    EXPECT_TRUE(torch::equal(of("Less"), torch::tensor({false, true, false}))) << type;
    EXPECT_TRUE(torch::equal(of("GreaterOrEqual"), torch::tensor({true, false, true}))) << type;
    EXPECT_TRUE(torch::equal(of("Mod").to(torch::kLong), wide({0, 1, 1}))) << type;
    EXPECT_TRUE(torch::equal(of("Div").to(torch::kLong), wide({-1, 0, 2}))) << type;
  }
}

TEST(ImportBits, QuotientsOf64BitsWithoutASign) {
  // All pairs of numbers around the powers of two, beside the arithmetic of the compiler.
  std::vector<uint64_t> numbers = {3, 10, 1000000007, 0xFFFFFFFFFFFFFFFFULL};
  for (int bit = 0; bit < 64; bit += 7) {
    for (const uint64_t around : {0, 1, 2}) numbers.push_back((uint64_t{1} << bit) + around - 1);
  }
  std::erase(numbers, 0);
  std::vector<int64_t> a, b, quotients, rests;
  for (const uint64_t one : numbers) {
    for (const uint64_t other : numbers) {
      a.push_back(static_cast<int64_t>(one));
      b.push_back(static_cast<int64_t>(other));
      quotients.push_back(static_cast<int64_t>(one / other));
      rests.push_back(static_cast<int64_t>(one % other));
    }
  }
  const at::Tensor x = longs(a).to(at::kUInt64), y = longs(b).to(at::kUInt64);
  EXPECT_TRUE(torch::equal(result_of("Div", {x, y}).to(torch::kLong), longs(quotients)));
  EXPECT_TRUE(torch::equal(result_of("Mod", {x, y}).to(torch::kLong), longs(rests)));
}

TEST(ImportBits, BitsOfAnotherTypeAreNoReshapeOfTheEngine) {
  const at::Tensor x = torch::tensor({1.0F, -2.5F, 0.0F});
  OnnxCase file;
  file.input("x", {3}).node("BitCast", {"x"}, {"y"}, {{"to", 6}}).output("y");
  const auto module = file.import(26);
  const at::Tensor right = x.view(torch::kInt);
  EXPECT_TRUE(torch::equal(module->forward(x), right));
  EXPECT_TRUE(torch::equal(lower_partitioned(*module).run({x}).at(0), right));
  EXPECT_ERROR(result_of("BitCast", {x}, {{"to", 7}}), "expected a type of 4 bytes, got one of 8");
}

TEST(ImportCasts, NumbersOfFewBitsWrap) {
  const at::Tensor x = torch::arange(-9, 17, torch::kFloat);
  const at::Tensor four = result_of("Cast", {x}, {{"to", 22}}), plain = result_of("Cast", {x}, {{"to", 21}});
  EXPECT_EQ(four.scalar_type(), torch::kChar);
  EXPECT_TRUE(torch::equal(four.to(torch::kFloat), (x + 8).remainder(16) - 8));
  EXPECT_TRUE(torch::equal(plain.to(torch::kFloat), x.remainder(16)));
  OnnxCase file;  // the type of an input says it as well
  file.input("x", {26}).typed_input("like", {1}, 22);
  file.node("CastLike", {"x", "like"}, {"y"}).output("y");
  EXPECT_TRUE(torch::equal(file.run({x, torch::zeros({1}, torch::kChar)}, 26), four));
}

TEST(ImportCasts, NumbersOfEightBitsSaturateOrNot) {
  constexpr float kInf = std::numeric_limits<float>::infinity(),
                  kNan = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor x = torch::tensor({464.0F, 465.0F, -1e6F, kInf, kNan, 0.3F, 60000.0F, 70000.0F});
  const auto cast = [&](int64_t to, int64_t saturate) {
    return result_of("Cast", {x}, {{"to", to}, {"saturate", saturate}}).to(torch::kFloat);
  };
  EXPECT_TRUE(torch::allclose(cast(17, 1),
                              torch::tensor({448.0F, 448.0F, -448.0F, 448.0F, kNan, 0.3125F, 448.0F, 448.0F}),
                              0, 0, /*equal_nan=*/true));
  EXPECT_TRUE(torch::allclose(
      cast(17, 0), torch::tensor({448.0F, kNan, kNan, kNan, kNan, 0.3125F, kNan, kNan}), 0, 0, true));
  EXPECT_TRUE(torch::allclose(cast(19, 1).slice(0, 2),
                              torch::tensor({-57344.0F, 57344.0F, kNan, 0.3125F, 57344.0F, 57344.0F}), 0, 0,
                              true));
  EXPECT_TRUE(torch::allclose(cast(19, 0).slice(0, 2),
                              torch::tensor({-kInf, kInf, kNan, 0.3125F, 57344.0F, kInf}), 0, 0, true));
}

TEST(ImportCasts, TypesOfFewBitsAreFollowedThroughMoves) {
  const at::Tensor x = torch::arange(-9, 17, torch::kFloat), right = (x + 8).remainder(16) - 8;
  OnnxCase file;
  file.input("x", {26}).input("y", {2}).node("Cast", {"y"}, {"four"}, {{"to", 22}});
  file.node("Identity", {"four"}, {"same"}).tensor("rows", torch::tensor({2, 1}));
  file.node("Reshape", {"same", "rows"}, {"column"}).node("Transpose", {"column"}, {"row"});
  file.node("CastLike", {"x", "row"}, {"z"}).output("z");
  const at::Tensor made = file.run({x, torch::zeros({2})}, 26);
  EXPECT_EQ(made.scalar_type(), torch::kChar);
  EXPECT_TRUE(torch::equal(made.to(torch::kFloat), right));
}

TEST(ImportCasts, NumbersOfFourBits) {
  constexpr float kInf = std::numeric_limits<float>::infinity(),
                  kNan = std::numeric_limits<float>::quiet_NaN();
  // Results of ml_dtypes 0.6.0 (float4_e2m1fn), where -0 is 0.
  const at::Tensor x = torch::tensor({kNan, kInf, -kInf, 0.25F, 0.75F, 1.25F, 1.75F, 2.5F, 3.5F, 5.0F, 5.1F,
                                      7.0F, -0.2F, 0.26F, -0.75F, -5.0F}),
                   right = torch::tensor({0.0F, 6.0F, -6.0F, 0.0F, 1.0F, 1.0F, 2.0F, 2.0F, 4.0F, 4.0F, 6.0F,
                                          6.0F, 0.0F, 0.5F, -1.0F, -4.0F});
  EXPECT_TRUE(torch::equal(result_of("Cast", {x}, {{"to", 23}}), right));
  OnnxCase file;  // codes 1 to 15 and 0, two in a byte
  file.input("x", {1});
  file.coded("w", 23, {16},
             torch::tensor({0x21, 0x43, 0x65, 0x87, 0xA9, 0xCB, 0xED, 0x0F}, torch::kInt).to(at::kByte));
  file.tensor("s", torch::tensor(2.0F)).node("DequantizeLinear", {"w", "s"}, {"n"});
  file.node("Mul", {"x", "n"}, {"y"}).output("y");
  EXPECT_TRUE(torch::equal(file.run({torch::ones({1})}, 23),
                           torch::tensor({1.0F, 2.0F, 3.0F, 4.0F, 6.0F, 8.0F, 12.0F, 0.0F, -1.0F, -2.0F,
                                          -3.0F, -4.0F, -6.0F, -8.0F, -12.0F, 0.0F})));
}

TEST(ImportCasts, CodesOf16BitsAndFloatsOf8) {
  const at::Tensor x = torch::tensor({{0.3F, -2.0F, 700.0F, 1e5F}});
  const auto both = [&](int64_t type, const at::Tensor& zero,
                        exchange::QdqForm form = exchange::QdqForm::codes) {
    OnnxCase file;
    file.input("x", {-1, 4}).tensor("s", torch::tensor(0.25F)).coded("z", type, {}, zero);
    file.node("QuantizeLinear", {"x", "s", "z"}, {"q"}).node("DequantizeLinear", {"q", "s", "z"}, {"y"});
    const auto module = file.output("y").import(23, {.qdq = form});
    EXPECT_TRUE(torch::equal(lower_partitioned(*module).run({x}).at(0), module->forward(x)));
    return module->forward(x);
  };
  // Results of ONNX Runtime 1.31.1.
  const at::Tensor bytes = torch::tensor(256, torch::kShort), none = torch::zeros({1}, torch::kByte);
  const at::Tensor signed16 = torch::tensor({{0.25F, -2.0F, 700.0F, 8127.75F}}),
                   unsigned16 = torch::tensor({{0.25F, -2.0F, 700.0F, 16319.75F}});
  for (const auto form : {exchange::QdqForm::codes, exchange::QdqForm::fake}) {
    EXPECT_TRUE(torch::equal(both(5, bytes, form), signed16));
    EXPECT_TRUE(torch::equal(both(4, bytes, form), unsigned16));
    EXPECT_TRUE(torch::equal(both(17, none, form), torch::tensor({{0.3125F, -2.0F, 112.0F, 112.0F}})));
  }
}

TEST(ImportCasts, CodesInBlocksOfWhatIsComputed) {
  const at::Tensor x = torch::tensor(
                       {{6.0F, 12.0F, 50.0F, 5.0F}, {50.0F, 8.0F, 4.0F, 5.0F}, {0.0F, 20.0F, 10.0F, 4.0F}}),
                   scale = torch::tensor({{1.5F, 2.5F}, {3.0F, 4.9F}, {5.1F, 6.9F}}),
                   zero = torch::tensor({{0, 1}, {1, 0}, {2, 3}}, torch::kInt).to(at::kByte);
  OnnxCase file;
  file.input("x", {3, 4}).tensor("s", scale).tensor("z", zero);
  const OnnxAttributes blocks = {{"axis", 1}, {"block_size", 2}};
  file.node("QuantizeLinear", {"x", "s", "z"}, {"q"}, blocks)
      .node("DequantizeLinear", {"q", "s", "z"}, {"y"}, blocks);
  const at::Tensor s = scale.repeat_interleave(2, 1), z = zero.to(torch::kFloat).repeat_interleave(2, 1);
  const at::Tensor codes = ((x / s).round() + z).clamp(0, 255);
  file.output("y");
  for (const auto form : {exchange::QdqForm::codes, exchange::QdqForm::fake})
    EXPECT_TRUE(torch::allclose(file.run({x}, 21, {.qdq = form}), (codes - z) * s));
}

/// A place is made for each code, not for each of a block.
TEST(ImportCasts, ABlockMayBeLargerThanItsRow) {
  const at::Tensor x = torch::tensor({{6.0F, 12.0F, 50.0F}, {50.0F, 8.0F, 4.0F}}),
                   scale = torch::tensor({{1.5F}, {3.0F}});
  for (const int64_t size : {int64_t{1} << 33, std::numeric_limits<int64_t>::max()}) {
    const OnnxAttributes block = {{"axis", 1}, {"block_size", size}};
    OnnxCase file;
    file.input("x", {2, 3}).tensor("s", scale).node("QuantizeLinear", {"x", "s"}, {"q"}, block);
    file.node("DequantizeLinear", {"q", "s"}, {"y"}, block).output("y");
    EXPECT_TRUE(torch::allclose(file.run({x}, 21), (x / scale).round().clamp(0, 255) * scale)) << size;
  }
}

TEST(ImportCasts, CodesThatNoEngineMakesComeFromLibTorch) {
  const at::Tensor x = torch::tensor({-3.0F, 0.4F, 5.0F, 90.0F}).expand({3, 4});
  OnnxCase file;  // a scale for each row: an engine would have to know the batch
  file.input("x", {3, 4}).tensor("scale", torch::tensor({1.0F, 2.0F, 4.0F}));
  file.coded("zero", /*int4=*/22, {3}, torch::zeros({2}, torch::kByte));
  file.node("QuantizeLinear", {"x", "scale", "zero"}, {"y"}, {{"axis", 0}}).output("y");
  const at::Tensor right = torch::tensor({-3, 0, 5, 7, -2, 0, 2, 7, -1, 0, 1, 7}, torch::kChar).view({3, 4});
  const auto module = file.import(23);
  EXPECT_TRUE(torch::equal(module->forward(x), right));
  EXPECT_TRUE(torch::equal(lower_partitioned(*module).run({x}).at(0), right));
}

TEST(ImportSignal, FourierTransforms) {
  torch::manual_seed(2);
  const at::Tensor real = torch::randn({2, 7, 1}), complex = torch::randn({2, 7, 2});
  const at::Tensor numbers = torch::view_as_complex(complex);
  const auto as_real = [](const at::Tensor& x) { return torch::view_as_real(x); };
  EXPECT_LT(share_off(result_of("DFT", {real}),
                      as_real(torch::fft::fft(real.squeeze(-1).to(torch::kComplexFloat)))),
            kNear);
  EXPECT_LT(share_off(result_of("DFT", {complex}), as_real(torch::fft::fft(numbers))), kNear);
  EXPECT_LT(share_off(result_of("DFT", {complex}, {{"inverse", 1}}), as_real(torch::fft::ifft(numbers))),
            kNear);
  EXPECT_LT(share_off(result_of("DFT", {complex, {}, torch::tensor(0)}, {}, 26, /*stored_from=*/1),
                      as_real(torch::fft::fft(numbers, {}, 0))),
            kNear);
  for (const int64_t length : {5, 7, 10}) {
    const at::Tensor n = torch::tensor(length);
    EXPECT_LT(share_off(result_of("DFT", {real, n}, {{"onesided", 1}}, 26, /*stored_from=*/1),
                        as_real(torch::fft::rfft(real.squeeze(-1), length))),
              kNear)
        << length;
    EXPECT_LT(
        share_off(result_of("DFT", {complex, n}, {{"onesided", 1}, {"inverse", 1}}, 26, /*stored_from=*/1),
                  torch::fft::irfft(numbers, length).unsqueeze(-1)),
        kNear)
        << length;
  }
}

TEST(ImportSignal, FramesOfASignal) {
  torch::manual_seed(3);
  const at::Tensor signal = torch::randn({2, 20, 1}), window = torch::hann_window(8);
  const at::Tensor right =
      torch::stft(signal.squeeze(-1), 8, 4, 8, window, /*center=*/false, "reflect", false, true,
                  /*return_complex=*/true);
  const at::Tensor ours =
      result_of("STFT", {signal, torch::tensor(4), window, torch::tensor(8)}, {}, 26, /*stored_from=*/1);
  EXPECT_LT(share_off(ours, torch::view_as_real(right).transpose(1, 2)), kNear);
}

/// What a second of sound takes follows its frames, not the square of its length.
TEST(ImportSignal, FramesOfALongSignal) {
  torch::manual_seed(5);
  constexpr int64_t kTime = 16000, kStep = 160, kFrame = 400;
  const at::Tensor signal = torch::randn({1, kTime, 1}), window = torch::hann_window(kFrame);
  const at::Tensor right = torch::stft(signal.squeeze(-1), kFrame, kStep, kFrame, window, /*center=*/false,
                                       "reflect", false, true, /*return_complex=*/true);
  const at::Tensor ours =
      result_of("STFT", {signal, torch::tensor(kStep), window}, {}, 26, /*stored_from=*/1);
  EXPECT_LT(share_off(ours, torch::view_as_real(right).transpose(1, 2)), 4 * kNear);
}

TEST(ImportSignal, PartsBySequences) {
  const at::Tensor x = torch::arange(16, torch::kFloat).view({4, 4});
  const at::Tensor reversed =
      result_of("ReverseSequence", {x, longs({1, 2, 3, 4})}, {{"batch_axis", 0}, {"time_axis", 1}});
  EXPECT_TRUE(torch::equal(
      reversed, torch::tensor({0., 1., 2., 3., 5., 4., 6., 7., 10., 9., 8., 11., 15., 14., 13., 12.})
                    .to(torch::kFloat)
                    .view({4, 4})));
  const at::Tensor condition = torch::tensor({false, true, true});
  EXPECT_TRUE(torch::equal(result_of("Compress", {x, condition}, {{"axis", 1}}, 26, /*stored_from=*/1),
                           x.slice(1, 1, 3)));
  EXPECT_TRUE(torch::equal(result_of("Compress", {x, condition}, {}, 26, /*stored_from=*/1),
                           torch::tensor({1.0F, 2.0F})));
  EXPECT_LT(share_off(result_of("Det", {x + torch::eye(4)}), torch::linalg_det(x + torch::eye(4))), kNear);
}

/// An empty batch takes no bytes of a file; the tables beside it would take gigabytes.
TEST(ImportSignal, TablesBesideAnEmptyBatchAreBounded) {
  constexpr int64_t kFar = int64_t{1} << 33;
  const auto refusal = [](const std::string& op, const std::vector<at::Tensor>& inputs,
                          const OnnxAttributes& attributes = {}) {
    return error_of([&] { result_of(op, inputs, attributes, 26, /*stored_from=*/1); });
  };
  const std::string words = "expected values of 4294967296 bytes in one run at most";
  EXPECT_SAYS(refusal("TensorScatter", {torch::empty({0, 1, 4, 2}), torch::empty({0, 1, kFar, 2})}),
              "(TensorScatter): " + words);
  const at::Tensor image = torch::empty({0, 1, 4, 4});
  EXPECT_SAYS(refusal("DeformConv", {image, torch::ones({1, 1, 1, 1}), torch::empty({0, 2, kFar, 1})}),
              "(DeformConv): " + words);
}

/// Operands of attention share the dimensions of '...'.
TEST(ImportSignal, BatchesOfProductsAreCountedOnce) {
  constexpr int64_t kBatch = 512, kSize = 24;
  const auto file = [&](const std::string& equation, const std::vector<int64_t>& a,
                        const std::vector<int64_t>& b) {
    OnnxCase made;
    made.input("a", a).input("b", b).node("Einsum", {"a", "b"}, {"y"}, {{"equation", equation}});
    return made.output("y");
  };
  // 2 MB; the product of both batches would be counted as 1 GB.
  const exchange::OnnxImportOptions options = {.max_bytes = int64_t{1} << 25};
  const std::vector<int64_t> sizes = {kBatch, kSize, kSize};
  const at::Tensor a = torch::randn(sizes), b = torch::randn(sizes);
  const at::Tensor y = file("...ij,...jk->...ik", sizes, sizes).run({a, b}, 18, options);
  EXPECT_LT(share_off(y, at::matmul(a, b)), kNear);
}

TEST(ImportSignal, CachesOfKeys) {
  const at::Tensor past = torch::zeros({2, 1, 4, 2}),
                   update = torch::arange(1, 9, torch::kFloat).view({2, 1, 2, 2});
  at::Tensor right = past.clone();
  right[0].narrow(1, 1, 2).copy_(update[0]);
  right[1].select(1, 3).copy_(update[1].select(1, 0));
  right[1].select(1, 0).copy_(update[1].select(1, 1));
  EXPECT_TRUE(torch::equal(
      result_of("TensorScatter", {past, update, longs({1, 3})}, {{"mode", std::string("circular")}}), right));
}

TEST(ImportSignal, ColumnsBecomeAnImage) {
  torch::manual_seed(4);
  const at::Tensor columns = torch::randn({2, 12, 12});
  EXPECT_TRUE(
      torch::equal(result_of("Col2Im", {columns, longs({4, 5}), longs({2, 2})}, {}, 26, /*stored_from=*/1),
                   at::col2im(columns, {4, 5}, {2, 2}, {1, 1}, {0, 0}, {1, 1})));
}

TEST(ImportSignal, ColumnsOfOneAndThreeDimensions) {
  torch::manual_seed(8);
  // Columns are summed as the transpose of taking them: of an image that is unfolded, by the numbers of
  // windows over each place.
  const at::Tensor line = torch::randn({2, 3, 7}), volume = torch::randn({1, 2, 3, 4, 5});
  const at::Tensor columns = torch::constant_pad_nd(line, {1, 0}).unfold(2, 3, 2);  // [2, 3, 3, 3]
  const at::Tensor made =
      result_of("Col2Im", {columns.permute({0, 1, 3, 2}).reshape({2, 9, 3}), longs({7}), longs({3})},
                {{"pads", std::vector<int64_t>{1, 0}}, {"strides", std::vector<int64_t>{2}}}, 26, 1);
  const at::Tensor windows = torch::tensor({1.0F, 2.0F, 1.0F, 2.0F, 1.0F, 1.0F, 0.0F});
  EXPECT_LT(share_off(made, line * windows), kNear);
  const at::Tensor blocks =
      volume.unfold(2, 1, 1).unfold(3, 1, 1).unfold(4, 5, 1);  // [1, 2, 3, 4, 1, 1, 1, 5]
  const at::Tensor again = result_of(
      "Col2Im",
      {blocks.permute({0, 1, 5, 6, 7, 2, 3, 4}).reshape({1, 10, 12}), longs({3, 4, 5}), longs({1, 1, 5})}, {},
      26, 1);
  EXPECT_TRUE(torch::equal(again, volume));
}

TEST(ImportSignal, WindowsAreLibTorchs) {
  for (const int64_t size : {2, 9, 10}) {
    for (const bool turns : {false, true}) {
      const auto window = [&](const std::string& op) {
        OnnxCase file;
        file.input("x", {1}).tensor("n", torch::tensor(size));
        file.node(op, {"n"}, {"w"}, {{"periodic", int64_t{turns}}}).node("Mul", {"x", "w"}, {"y"});
        return file.output("y").run({torch::ones({1})}, 18);
      };
      const auto near = [](const at::Tensor& a, const at::Tensor& b) {
        return torch::allclose(a, b, 1e-6, 1e-6);
      };
      EXPECT_TRUE(near(window("HannWindow"), torch::hann_window(size, turns))) << size;
      EXPECT_TRUE(near(window("HammingWindow"), torch::hamming_window(size, turns, 25.0 / 46, 21.0 / 46)))
          << size;
      EXPECT_TRUE(near(window("BlackmanWindow"), torch::blackman_window(size, turns))) << size;
    }
  }
}

TEST(ImportSignal, WavesAreBuffers) {
  OnnxCase file;
  file.input("x", {-1, 8, 1}).node("DFT", {"x"}, {"y"}, {{"onesided", 1}}).output("y");
  const auto module = file.import(17);
  EXPECT_EQ(module->named_buffers()["y.cosines"].sizes(), (std::vector<int64_t>{8, 5}));
  OnnxCase free;  // another table for each length
  free.input("x", {1, -2, 1}).node("DFT", {"x"}, {"y"}).output("y");
  EXPECT_ERROR(free.import(17), "expected the same lengths and places at all sizes of the inputs");
}

TEST(ImportSignal, ConvolutionsOfThePast) {
  torch::manual_seed(5);
  const at::Tensor x = torch::randn({2, 3, 6}), weight = torch::randn({3, 1, 4}), bias = torch::randn({3});
  const at::Tensor state = torch::randn({2, 3, 3}), all = torch::cat({state, x}, 2);
  const auto made = results_of("CausalConvWithState", {x, weight, bias, state},
                               {{"activation", std::string("silu")}}, 2, 27);
  EXPECT_LT(share_off(made.at(0), torch::silu(at::conv1d(all, weight, bias, 1, at::IntArrayRef{0}, 1, 3))),
            kNear);
  EXPECT_TRUE(torch::equal(made.at(1), all.slice(2, 6)));
  const auto without = results_of("CausalConvWithState", {x, weight}, {}, 2, 27);
  EXPECT_TRUE(torch::equal(without.at(1), x.slice(2, 3)));
}

TEST(ImportSignal, StatesOfLinearAttention) {
  torch::manual_seed(6);
  constexpr int64_t kBatch = 2, kTime = 4, kHeads = 4, kKept = 2, kKeys = 3, kValues = 5;
  const at::Tensor q = torch::randn({kBatch, kTime, kHeads * kKeys}),
                   k = torch::randn({kBatch, kTime, kKept * kKeys}),
                   v = torch::randn({kBatch, kTime, kKept * kValues}),
                   past = torch::randn({kBatch, kKept, kKeys, kValues}),
                   decay = -torch::rand({kBatch, kTime, kKept}), rate = torch::rand({kBatch, kTime, kKept});
  const auto made = results_of("LinearAttention", {q, k, v, past, decay, rate},
                               {{"q_num_heads", kHeads}, {"kv_num_heads", kKept}, {"scale", 0.5F}}, 2, 27);
  at::Tensor state = past.clone();
  for (int64_t t = 0; t < kTime; ++t) {
    for (int64_t b = 0; b < kBatch; ++b) {
      for (int64_t h = 0; h < kKept; ++h) {
        at::Tensor s = state[b][h] * decay[b][t][h].exp();
        const at::Tensor key = k[b][t].slice(0, h * kKeys, (h + 1) * kKeys),
                         value = v[b][t].slice(0, h * kValues, (h + 1) * kValues);
        s = s + rate[b][t][h] * torch::outer(key, value - torch::mv(s.t(), key));
        state[b][h].copy_(s);
        for (int64_t group = 0; group < kHeads / kKept; ++group) {
          const int64_t head = h * (kHeads / kKept) + group;
          const at::Tensor query = q[b][t].slice(0, head * kKeys, (head + 1) * kKeys);
          const at::Tensor ours = made.at(0)[b][t].slice(0, head * kValues, (head + 1) * kValues);
          EXPECT_LT(share_off(ours, 0.5 * torch::mv(s.t(), query)), 1e-5) << t << ' ' << head;
        }
      }
    }
  }
  EXPECT_LT(share_off(made.at(1), state), 1e-5);
  const at::Tensor many = torch::zeros({1, 2000, 4});
  EXPECT_ERROR(
      result_of("LinearAttention", {many, many, many},
                {{"q_num_heads", 2}, {"kv_num_heads", 2}, {"update_rule", std::string("linear")}}, 27),
      "expected at most 10000 calls for all nodes that are computed step by step, got 28000");
  EXPECT_ERROR(
      results_of("LinearAttention", {q, k, v}, {{"q_num_heads", kHeads}, {"kv_num_heads", kKept}}, 2, 27),
      "expected a decay for the rule gated_delta");
}

TEST(ImportAttention, QueriesSeeAWindowOfKeys) {
  torch::manual_seed(7);
  const at::Tensor q = torch::randn({2, 1, 5, 4}), k = torch::randn({2, 1, 5, 4}),
                   v = torch::randn({2, 1, 5, 4});
  const at::Tensor ours =
      result_of("Attention", {q, k, v}, {{"left_window_size", 1}, {"right_window_size", 2}}, 27);
  const at::Tensor ones = torch::ones({5, 5}, torch::kBool);
  EXPECT_LT(share_off(ours, at::scaled_dot_product_attention(q, k, v, ones.triu(-1) & ones.tril(2))), kNear);
}

}  // namespace ulp::test
