#include "ulp/amp/autocast/explain.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <nlohmann/json.hpp>

#include "constants.h"
#include "ulp/amp/autocast/autocast.h"
#include "ulp/amp/autocast/op_policy.h"
#include "ulp/base/error.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/graph/graph_module.h"
#include "ulp/report/table.h"

namespace {

using ulp::amp::Autocast;
using ulp::amp::explain;
using ulp::amp::ExplainRow;
using ulp::amp::Explanation;
using ulp::amp::OpPolicy;

using Dtypes = std::vector<at::ScalarType>;

const ExplainRow& row(const Explanation& explanation, const std::string& op) {
  for (const ExplainRow& row : explanation.rows) {
    if (row.op == op) return row;
  }
  ADD_FAILURE() << "no row for " << op;
  static const ExplainRow none;
  return none;
}

TEST(Explain, SaysWhatRanInWhichPrecisionWithItsCasts) {
  const auto x = torch::rand({4, 8}), w = torch::rand({8, 2});
  const auto why = explain([&] {
    const Autocast guard(torch::kCPU, kBF16, OpPolicy::cuda_like());
    torch::softmax(torch::relu(torch::mm(x, w)), 1);
  });
  ASSERT_EQ(why.rows.size(), 3u);
  const int64_t bytes = (4 * 8 + 8 * 2) * (4 + 2);
  EXPECT_EQ(why.rows[0],
            (ExplainRow{"aten::mm", "", {kFloat, kFloat}, kBF16, {kBF16}, 2, bytes, "lower_precision list"}));
  EXPECT_EQ(why.rows[1],
            (ExplainRow{"aten::relu", "", {kBF16}, kBF16, {kBF16}, 0, 0, "not listed: follows its inputs"}));
  EXPECT_EQ(why.rows[2].op, "aten::softmax.int");
  EXPECT_EQ(why.rows[2].computed, kFloat);
  EXPECT_EQ(why.rows[2].out, Dtypes{kFloat});
  EXPECT_EQ(why.rows[2].reason, "fp32_set_opt_dtype list");
  EXPECT_EQ(why.casts(), 3);  // softmax casts its input itself
  EXPECT_EQ(why.cast_bytes(), bytes + 4 * 2 * (2 + 4));
}

TEST(Explain, KnowsLibTorchsOwnAutocast) {
  const auto x = torch::rand({4, 4});
  const auto low = x.to(kBF16);
  const Autocast guard(torch::kCPU, kBF16);
  const auto why = explain([&] {
    torch::mm(x, low);
    torch::mse_loss(low, low);
    torch::cat({low, x});
    torch::exp(low);
  });
  EXPECT_EQ(row(why, "aten::mm").computed, kBF16);
  EXPECT_EQ(row(why, "aten::mm").casts, 1);
  EXPECT_EQ(row(why, "aten::mse_loss").computed, kFloat);
  EXPECT_EQ(row(why, "aten::mse_loss").reason, "fp32 list");
  EXPECT_EQ(row(why, "aten::cat").reason, "widest list: promotes");
  EXPECT_EQ(row(why, "aten::cat").computed, kFloat);
  EXPECT_EQ(row(why, "aten::exp").computed, kBF16);
}

TEST(Explain, SaysWhySomethingWasLeftAlone) {
  const auto x = torch::rand({4, 4});
  const auto why = explain([&] {
    torch::mul(x, x);
    const Autocast guard(torch::kCPU, kBF16);
    const auto d = x.to(torch::kDouble);
    torch::mm(d, d);
    torch::rand({4, 4}).addmm_(x, x);
    torch::bitwise_not(torch::ones(2, torch::kLong));
    x.to(kBF16).view_as(x);
  });
  EXPECT_EQ(row(why, "aten::mul.Tensor").reason, "autocast is off");
  EXPECT_EQ(row(why, "aten::mm").reason, "fp64: left alone");
  EXPECT_EQ(row(why, "aten::addmm_").reason, "in-place or out=: left alone");
  EXPECT_EQ(row(why, "aten::bitwise_not").reason, "no floating inputs");
  EXPECT_EQ(row(why, "aten::to.dtype").reason, "cast written in the model");
  EXPECT_EQ(row(why, "aten::to.dtype").casts, 1);
}

TEST(Explain, OpensOpsThatAreOnNoListButCallSomeThatAre) {
  const auto logits = torch::rand({4, 3}).to(kBF16);
  const auto target = torch::tensor({0, 1, 2, 0});
  const Autocast guard(torch::kCPU, kBF16, OpPolicy::cuda_like());
  const auto why = explain([&] { torch::cross_entropy_loss(logits, target); });
  // cross_entropy_loss asks log_softmax for the type of the logits, so that the list does not apply.
  EXPECT_EQ(row(why, "aten::log_softmax.int").computed, kBF16);
  EXPECT_EQ(row(why, "aten::log_softmax.int").reason, "asked for its own dtype: left alone");
  EXPECT_EQ(row(why, "aten::nll_loss").reason, "fp32 list");
  for (const ExplainRow& row : why.rows) EXPECT_NE(row.op, "aten::cross_entropy_loss");
}

struct ConvNet : torch::nn::Module {
  torch::nn::Conv2d conv = register_module("conv", torch::nn::Conv2d(3, 4, 3));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(4 * 6 * 6, 2));
  torch::Tensor forward(const torch::Tensor& x) { return head(torch::relu(conv(x)).flatten(1)); }
};

TEST(Explain, NamesTheModulesOfACapturedModel) {
  ConvNet net;
  const auto x = torch::rand({2, 3, 8, 8});
  const auto captured = ulp::capture(net, {x});
  const Autocast guard(torch::kCPU, kBF16);
  const auto why = explain(*captured, {x});
  EXPECT_EQ(row(why, "aten::conv2d").path, "conv");
  EXPECT_EQ(row(why, "aten::conv2d").computed, kBF16);
  EXPECT_EQ(row(why, "aten::conv2d").casts, 3);
  EXPECT_EQ(row(why, "aten::addmm").path, "head");
  EXPECT_EQ(ulp::graph::running_node(), nullptr);
}

TEST(Explain, NamesTheModulesOfAnyModelByTheirParameters) {
  ConvNet net;
  const auto x = torch::rand({2, 3, 8, 8});
  const auto why = explain(net, [&] { net.forward(x).sum().backward(); });
  EXPECT_EQ(row(why, "aten::conv2d").path, "conv");
  EXPECT_EQ(row(why, "aten::relu").path, "");
  EXPECT_EQ(row(why, "aten::conv2d").reason, "autocast is off");
  EXPECT_EQ(row(why, "aten::convolution_backward").op, "aten::convolution_backward");
}

TEST(Explain, PrintsATableAndJson) {
  const auto x = torch::rand({2, 2});
  const Autocast guard(torch::kCPU, kBF16);
  const auto why = explain([&] { torch::mm(x, x); });
  const std::string text = ulp::report::to_markdown(why.table());
  EXPECT_NE(text.find("| aten::mm |"), std::string::npos) << text;
  EXPECT_NE(text.find("fp32 x2 | bf16 | bf16"), std::string::npos) << text;
  const auto json = nlohmann::json::parse(why.to_json());
  EXPECT_EQ(json["rows"][0]["computed"], "bf16");
  EXPECT_EQ(json["rows"][0]["in"], (std::vector<std::string>{"fp32", "fp32"}));
  EXPECT_EQ(json["cast_bytes"], why.cast_bytes());
}

TEST(Explain, AnExceptionOrANestedCallLeavesNothingBehind) {
  EXPECT_THROW(explain([] { torch::mm(torch::ones({2, 2}), torch::ones({3, 3})); }), c10::Error);
  EXPECT_THROW(explain([] { explain([] {}); }), ulp::Error);
  EXPECT_EQ(explain([] { torch::ones(2).add(1); }).rows.size(), 2u);
}

}  // namespace
