// Weights that nodes make of tensors of the file, branches, and recurrent layers in other forms.
#include <torch/torch.h>

#include <cmath>

#include "error_of.h"
#include "onnx_case.h"

namespace ulp::test {

namespace {

/// An LSTM [time, batch, features] by LibTorch, from ONNX's gates i o f c.
at::Tensor lstm_of(const at::Tensor& x, const at::Tensor& w, const at::Tensor& r) {
  const auto turned = [](const at::Tensor& rows) {
    const auto gates = rows.chunk(4);
    return torch::cat({gates[0], gates[2], gates[3], gates[1]});
  };
  const int64_t hidden = r.size(1);
  const at::Tensor zeros = torch::zeros({1, x.size(1), hidden});
  return std::get<0>(at::lstm(x, {zeros, zeros}, {turned(w), turned(r)}, false, 1, 0.0, false, false, false));
}

/// x, and weights that are as the tests make them.
OnnxCase recurrent_case(const OnnxAttributes& attributes, std::vector<int64_t> sizes, const at::Tensor& w,
                        const at::Tensor& r, const std::string& op = "LSTM") {
  OnnxCase file;
  file.input("x", sizes).tensor("w", w.unsqueeze(0)).tensor("r", r.unsqueeze(0));
  OnnxAttributes all = {{"hidden_size", r.size(1)}};
  all.insert(all.end(), attributes.begin(), attributes.end());
  return file.node(op, {"x", "w", "r"}, {"y"}, all).output("y");
}

}  // namespace

TEST(ImportConstants, RecurrentWeightsMayBeMade) {
  torch::manual_seed(1);
  const at::Tensor w = torch::randn({16, 3}), r = torch::randn({16, 4}), x = torch::randn({5, 2, 3});
  OnnxCase file;
  file.input("x", {5, -1, 3})
      .tensor("w", w)
      .tensor("r", torch::cat({r, r}))
      .tensor("zero", torch::tensor({0}));
  file.tensor("start", torch::tensor({0}))
      .tensor("end", torch::tensor({8}))
      .tensor("rest", torch::tensor({16}));
  // W of two parts, R cut out of a larger one.
  file.node("Slice", {"w", "start", "end", "zero"}, {"first"})
      .node("Slice", {"w", "end", "rest", "zero"}, {"second"});
  file.node("Concat", {"first", "second"}, {"joined"}, {{"axis", 0}})
      .node("Unsqueeze", {"joined", "zero"}, {"W"});
  file.node("Slice", {"r", "start", "rest", "zero"}, {"cut"}).node("Unsqueeze", {"cut", "zero"}, {"R"});
  file.node("LSTM", {"x", "W", "R"}, {"y"}, {{"hidden_size", 4}}).output("y");
  const auto module = file.import();
  EXPECT_LT(share_off(module->forward(x).squeeze(1), lstm_of(x, w, r)), 1e-6);
  module->train();
  module->forward(x).square().sum().backward();
  EXPECT_EQ(module->named_parameters().size(), 2U);
  for (const auto& item : module->named_parameters())
    EXPECT_GT(item.value().grad().abs().sum().item<double>(), 0) << item.key();
}

TEST(ImportConstants, StatisticsOfABatchNormMayBeMade) {
  torch::manual_seed(2);
  const at::Tensor x = torch::randn({8, 3}) * 2 + 1;
  OnnxCase file;
  file.input("x", {-1, 3})
      .tensor("n", torch::tensor({3}))
      .tensor("g", torch::ones({3}))
      .tensor("b", torch::zeros({3}));
  file.node("ConstantOfShape", {"n"}, {"mean"}, {{"value", torch::tensor({1.0F})}});
  file.node("ConstantOfShape", {"n"}, {"var"}, {{"value", torch::tensor({4.0F})}});
  file.node("BatchNormalization", {"x", "g", "b", "mean", "var"}, {"y"}).output("y");
  const auto module = file.import();
  EXPECT_LT(share_off(module->forward(x), (x - 1) / std::sqrt(4 + 1e-5)), 1e-6);
  module->train();
  module->forward(x);
  EXPECT_FALSE(torch::equal(module->named_buffers()["mean"], torch::ones({3})));
}

TEST(ImportConstants, BranchesOfConstantConditionsAreTaken) {
  const at::Tensor x = torch::tensor({{-1.0F, 2.0F}});
  for (const bool yes : {true, false}) {
    // Both branches call their value the same.
    OnnxCase relu, minus, file;
    relu.node("Sigmoid", {"x"}, {"a"}).node("Mul", {"x", "a"}, {"b"}).output("b");
    minus.node("Tanh", {"x"}, {"a"}).node("Mul", {"x", "a"}, {"b"}).output("b");
    file.input("x", {-1, 2}).node("Constant", {}, {"c"}, {{"value", torch::tensor(yes)}});
    file.node("Not", {"c"}, {"d"}).node("Not", {"d"}, {"e"});
    file.node("If", {"e"}, {"y"}, {{"then_branch", relu.branch()}, {"else_branch", minus.branch()}})
        .output("y");
    EXPECT_LT(share_off(file.run({x}), yes ? x * x.sigmoid() : x * x.tanh()), 1e-6) << yes;
  }
}

TEST(ImportConstants, BranchesThatFollowFreeSizesAreRefused) {
  OnnxCase relu, minus, file;
  relu.node("Relu", {"x"}, {"a"}).output("a");
  minus.node("Neg", {"x"}, {"b"}).output("b");
  file.input("x", {-1, -2}).tensor("one", torch::tensor(1)).tensor("few", torch::tensor(3));
  file.node("Shape", {"x"}, {"s"}).node("Gather", {"s", "one"}, {"n"}).node("Less", {"n", "few"}, {"c"});
  file.node("If", {"c"}, {"y"}, {{"then_branch", relu.branch()}, {"else_branch", minus.branch()}})
      .output("y");
  EXPECT_ERROR(
      file.import(),
      "node 'the_Less' (Less): expected a number that follows the sizes of the inputs by a polynomial");
  EXPECT_TRUE(torch::equal(file.run({torch::ones({1, 5})}, 18, {.sizes = {{"time", {.min = 4, .max = 9}}}}),
                           -torch::ones({1, 5})));
}

TEST(ImportConstants, RecurrentLayersRunBackAndWithTheBatchFirst) {
  torch::manual_seed(3);
  const at::Tensor w = torch::randn({8, 3}), r = torch::randn({8, 2}), x = torch::randn({4, 2, 3});
  const at::Tensor back = recurrent_case({{"direction", "reverse"}}, {4, -1, 3}, w, r).run({x});
  EXPECT_LT(share_off(back.squeeze(1), lstm_of(x.flip({0}), w, r).flip({0})), 1e-6);
  const at::Tensor first =
      recurrent_case({{"layout", 1}}, {-1, 4, 3}, w, r).run({x.transpose(0, 1).contiguous()});
  EXPECT_LT(share_off(first.squeeze(2), lstm_of(x, w, r).transpose(0, 1)), 1e-6);
  EXPECT_ERROR(recurrent_case({{"input_forget", 1}}, {4, -1, 3}, w, r).import(), "got input_forget");
}

TEST(ImportConstants, RecurrentLayersWithoutGates) {
  torch::manual_seed(4);
  const at::Tensor w = torch::randn({2, 3}), r = torch::randn({2, 2}), x = torch::randn({4, 2, 3});
  const at::Tensor right =
      std::get<0>(at::rnn_tanh(x, torch::zeros({1, 2, 2}), {w, r}, false, 1, 0.0, false, false, false));
  EXPECT_LT(share_off(recurrent_case({}, {4, -1, 3}, w, r, "RNN").run({x}).squeeze(1), right), 1e-6);
}

TEST(ImportConstants, AGruThatResetsItsStateFirst) {
  torch::manual_seed(5);
  const at::Tensor w = torch::randn({6, 3}), r = torch::randn({6, 2}), b = torch::randn({12}),
                   x = torch::randn({4, 2, 3});
  OnnxCase file;
  file.input("x", {4, -1, 3})
      .tensor("w", w.unsqueeze(0))
      .tensor("r", r.unsqueeze(0))
      .tensor("b", b.unsqueeze(0));
  file.node("GRU", {"x", "w", "r", "b"}, {"y"}, {{"hidden_size", 2}}).output("y");
  at::Tensor h = torch::zeros({2, 2});
  std::vector<at::Tensor> states;
  const auto wi = w.chunk(3), ri = r.chunk(3), bi = b.chunk(6);
  for (int64_t t = 0; t < 4; ++t) {
    const at::Tensor z = torch::sigmoid(x[t].matmul(wi[0].t()) + h.matmul(ri[0].t()) + bi[0] + bi[3]);
    const at::Tensor reset = torch::sigmoid(x[t].matmul(wi[1].t()) + h.matmul(ri[1].t()) + bi[1] + bi[4]);
    const at::Tensor n = torch::tanh(x[t].matmul(wi[2].t()) + (reset * h).matmul(ri[2].t()) + bi[2] + bi[5]);
    h = (1 - z) * n + z * h;
    states.push_back(h);
  }
  EXPECT_LT(share_off(file.run({x}).squeeze(1), torch::stack(states)), 1e-5);
}

TEST(ImportConstants, LoopsOfAKnownNumberOfStepsAreUnrolled) {
  // a = a * 0.5 + x, three times; all a and the last one.
  OnnxCase body, file;
  body.input("i", {}, at::kLong).input("c", {}, at::kBool).input("a", {2});
  body.tensor("half", torch::tensor(0.5F))
      .node("Mul", {"a", "half"}, {"m"})
      .node("Add", {"m", "x"}, {"next"});
  body.node("Identity", {"c"}, {"on"})
      .node("Identity", {"next"}, {"all"})
      .output("on")
      .output("next")
      .output("all");
  file.input("x", {-1, 2}).tensor("n", torch::tensor(3));
  file.node("Loop", {"n", "", "x"}, {"last", "steps"}, {{"body", body.branch()}});
  file.node("ReduceSum", {"steps", "zero"}, {"sum"}, {{"keepdims", 0}}).tensor("zero", torch::tensor({0}));
  file.node("Concat", {"last", "sum"}, {"y"}, {{"axis", 1}}).output("y");
  const at::Tensor x = torch::tensor({{1.0F, -2.0F}});
  EXPECT_LT(share_off(file.run({x}), torch::cat({x * 1.875, x * (1.5 + 1.75 + 1.875)}, 1)), 1e-6);
}

TEST(ImportConstants, ScansGoOverSequencesFromEitherEnd) {
  OnnxCase body;
  body.input("sum", {-1}).input("one", {-1});
  body.node("Add", {"sum", "one"}, {"next"})
      .node("Identity", {"next"}, {"part"})
      .output("next")
      .output("part");
  const at::Tensor x = torch::tensor({{1.0F, 2.0F, 3.0F}, {4.0F, 5.0F, 6.0F}});
  for (const int64_t back : {0, 1}) {
    OnnxCase file;
    file.input("x", {-1, 3}).input("start", {-1});
    file.node("Scan", {"start", "x"}, {"last", "parts"},
              {{"body", body.branch()},
               {"num_scan_inputs", 1},
               {"scan_input_axes", std::vector<int64_t>{1}},
               {"scan_input_directions", std::vector<int64_t>{back}},
               {"scan_output_axes", std::vector<int64_t>{1}}});
    const at::Tensor right = (back != 0 ? x.flip({1}) : x).cumsum(1) + 1;
    EXPECT_TRUE(torch::equal(file.output("parts").run({x, torch::ones({2})}), right)) << back;
  }
  OnnxCase free;
  free.input("x", {-1, -2}).input("start", {-1});
  free.node("Scan", {"start", "x"}, {"last", "parts"},
            {{"body", body.branch()}, {"num_scan_inputs", 1}, {"scan_input_axes", std::vector<int64_t>{1}}});
  EXPECT_ERROR(free.output("last").import(),
               "node 'the_Scan' (Scan): expected a number of steps that is the same at all sizes");
}

TEST(ImportConstants, AttentionAsAnOperator) {
  torch::manual_seed(6);
  const at::Tensor q = torch::randn({2, 3, 8}), k = torch::randn({2, 4, 4}), v = torch::randn({2, 4, 4});
  const auto heads = [](const at::Tensor& x, int64_t count) {
    return x.view({2, -1, count, x.size(2) / count}).transpose(1, 2);
  };
  const at::Tensor keys = heads(k, 1).repeat_interleave(2, 1), values = heads(v, 1).repeat_interleave(2, 1);
  for (const bool capped : {false, true}) {
    OnnxCase file;
    file.input("q", {-1, 3, 8}).input("k", {-1, 4, 4}).input("v", {-1, 4, 4});
    OnnxAttributes attributes = {{"q_num_heads", 2}, {"kv_num_heads", 1}, {"is_causal", 1}, {"scale", 0.3F}};
    if (capped) attributes.emplace_back("softcap", 2.0F);
    file.node("Attention", {"q", "k", "v"}, {"y"}, attributes).output("y");
    at::Tensor scores = heads(q, 2).matmul(keys.transpose(-2, -1)) * 0.3;
    if (capped) scores = torch::tanh(scores / 2) * 2;
    scores = scores.masked_fill(torch::ones({3, 4}, torch::kBool).tril().logical_not(), -INFINITY);
    const at::Tensor right = scores.softmax(-1).matmul(values).transpose(1, 2).reshape({2, 3, 8});
    EXPECT_LT(share_off(file.run({q, k, v}, 23), right), 1e-5) << capped;
  }
}

TEST(ImportConstants, InputsThatTheCallerGivesAreNumbers) {
  OnnxCase file;
  file.input("x", {-1, 3}).input("axes", {1}, at::kLong).node("ReduceSum", {"x", "axes"}, {"y"});
  file.output("y");
  const at::Tensor x = torch::tensor({{1.0F, 2.0F, 3.0F}, {4.0F, 5.0F, 6.0F}});
  EXPECT_ERROR(file.import(), "expected input 1, 'axes', to follow from constants and sizes alone");
  const auto given = [&](const std::string& name, const at::Tensor& value) {
    return file.run({x}, 18, {.values = {{name, value}}});
  };
  EXPECT_TRUE(torch::equal(given("axes", torch::tensor({int64_t{1}})), x.sum(1, true)));
  EXPECT_TRUE(torch::equal(given("axes", torch::tensor({int64_t{-1}})), x.sum(1, true)));
  EXPECT_ERROR(given("axis", torch::tensor({int64_t{1}})),
               "expected values for inputs of the file, x, axes, got one for 'axis'");
  EXPECT_ERROR(given("axes", torch::tensor({1}, torch::kInt)),
               "expected a value of the type and the sizes of input 'axes', int64, got int32 [1]");
  EXPECT_ERROR(given("axes", torch::tensor({0, 1}, torch::kLong)),
               "expected a value of the type and the sizes of input 'axes', int64, got int64 [2]");
}

}  // namespace ulp::test
