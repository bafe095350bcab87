#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/quant/static/annotation.h"

namespace ulp::quant {
namespace {

using graph::Argument;
using graph::Attribute;
using graph::Graph;
using graph::Node;
using graph::Value;

// Graphs written by hand: every value is f32[N, 4, 8, 8] unless a test says otherwise.
struct Builder {
  Graph graph;
  Value* x = graph.add_input("x");

  Builder() { x->meta = image(); }

  static graph::TensorMeta image(int64_t channels = 4) {
    return {at::kFloat, {{1, 1, 0}, {0, 1, channels}, {0, 1, 8}, {0, 1, 8}}, false};
  }
  Value* call(const std::string& target, std::vector<Argument> args, const std::string& scope = "") {
    Node* node = graph.call(target, std::move(args));
    node->scope = scope;
    node->output()->meta = image();
    return node->output();
  }
  Value* conv(Value* input, const std::string& name) {
    graph.set_attribute(name + ".weight", {Attribute::Kind::parameter, torch::ones({4, 4, 1, 1})});
    return call("aten::conv2d", {input, graph.attribute(name + ".weight"), c10::IValue()}, name);
  }
  Value* add(Value* a, Value* b) { return call("aten::add.Tensor", {a, b}); }
  Value* relu(Value* input) { return call("aten::relu", {input}); }
  Value* pool(Value* input) {
    return call("aten::max_pool2d", {input, c10::IValue(std::vector<int64_t>{3, 3})});
  }
  Value* average(Value* input) {
    return call("aten::adaptive_avg_pool2d", {input, c10::IValue(std::vector<int64_t>{1, 1})});
  }
  Value* cat(const std::vector<Value*>& values, int64_t dim = 1) {
    std::vector<Argument> items;
    for (Value* value : values) items.emplace_back(value);
    Value* joined = call("aten::cat", {Argument::list(std::move(items)), c10::IValue(dim)});
    joined->meta = image(4 * static_cast<int64_t>(values.size()));
    return joined;
  }
  Annotation done(Value* result, const Recipe& recipe = Recipe::x86_int8()) {
    graph.set_output(result);
    return annotate(graph, recipe);
  }
};

std::vector<std::string> chains(const Annotation& placement) {
  std::vector<std::string> names;
  for (const Chain& chain : placement.chains) names.push_back(chain.describe());
  return names;
}

using Names = std::vector<std::string>;
using Values = std::vector<Value*>;

TEST(Annotation, ResidualBlockFusesIntoTheFirstLayer) {
  Builder b;
  Value* one = b.relu(b.conv(b.x, "conv1"));
  Value* two = b.conv(one, "conv2");
  Value* down = b.conv(b.x, "down");
  Value* sum = b.relu(b.add(two, down));
  const Annotation placement = b.done(b.conv(sum, "last"));
  EXPECT_EQ(chains(placement), (Names{"conv1 + relu", "conv2 + add + relu", "down", "last"}));
  EXPECT_EQ(placement.observed, (Values{b.x, one, down, sum}));
  EXPECT_TRUE(placement.sharing.empty());
  EXPECT_TRUE(placement.report.near_misses.empty());
}

using Pairs = std::vector<std::pair<Value*, Value*>>;

TEST(Annotation, OperandsOfACatTakeTheParametersOfItsResult) {
  Builder b;
  Value* one = b.relu(b.conv(b.x, "conv1"));
  Value* two = b.conv(b.x, "conv2");
  Value* joined = b.cat({one, two});
  const Annotation placement = b.done(b.conv(joined, "last"));
  EXPECT_EQ(placement.observed, (Values{b.x, joined}));
  EXPECT_EQ(placement.sharing, (Pairs{{one, joined}, {two, joined}}));
  EXPECT_TRUE(placement.report.near_misses.empty());
}

TEST(Annotation, AnOperandThatOthersReadKeepsItsOwn) {
  Builder b;
  Value* one = b.conv(b.x, "conv1");
  Value* two = b.conv(one, "conv2");
  Value* pooled = b.pool(one);
  Value* joined = b.cat({two, pooled, one, one});
  const Annotation placement = b.done(b.conv(joined, "last"));
  EXPECT_EQ(placement.observed, (Values{b.x, one, joined}));
  EXPECT_EQ(placement.sharing, (Pairs{{two, joined}, {pooled, one}}));
}

TEST(Annotation, NestedCatsHaveOneSetOfParameters) {
  Builder b;
  Value* one = b.conv(b.x, "conv1");
  Value* two = b.conv(b.x, "conv2");
  Value* three = b.conv(b.x, "conv3");
  Value* inner = b.cat({one, two});
  Value* outer = b.cat({inner, three});
  const Annotation placement = b.done(b.conv(b.pool(outer), "last"));
  Value* pooled = placement.sharing.back().first;
  EXPECT_EQ(placement.observed, (Values{b.x, outer}));
  EXPECT_EQ(placement.sharing,
            (Pairs{{one, outer}, {two, outer}, {three, outer}, {inner, outer}, {pooled, outer}}));
}

TEST(Annotation, ACatOfFloatsOrOfRowsOrThatNobodyReadsStaysFloat) {
  for (const int kind : {0, 1, 2}) {
    Builder b;
    Value* one = b.conv(b.x, "conv1");
    Value* other = kind == 0 ? b.call("aten::sigmoid", {b.x}) : b.conv(b.x, "conv2");
    Value* joined = b.cat({one, other}, kind == 1 ? 2 : 1);
    const Annotation placement = b.done(kind == 2 ? joined : b.conv(joined, "last"));
    EXPECT_TRUE(placement.sharing.empty());
    ASSERT_FALSE(placement.report.near_misses.empty());
    const char* reasons[] = {"is no result of a quantized op", "it does not join channels",
                             "no quantized op reads its result"};
    const std::string& last = placement.report.near_misses.front();
    EXPECT_NE(last.find(reasons[kind]), std::string::npos) << last;
  }
}

TEST(Annotation, PartsAndShufflesOfChannelsKeepTheParameters) {
  Builder b;
  Value* one = b.relu(b.conv(b.x, "conv1"));
  Value* mixed = b.call("aten::channel_shuffle", {one, c10::IValue(int64_t{2})});
  Node* chunk = b.graph.call("aten::chunk", {mixed, c10::IValue(int64_t{2}), c10::IValue(int64_t{1})});
  b.graph.set_output_count(chunk, 2);
  Value *first = chunk->output(0), *second = chunk->output(1);
  first->meta = second->meta = Builder::image(2);
  Value* joined = b.cat({first, b.conv(second, "conv2")});
  const Annotation placement = b.done(b.conv(joined, "last"));
  Value* branch = joined->producer->args[0].items[1].value;
  EXPECT_EQ(placement.observed, (Values{b.x, one, joined}));
  EXPECT_EQ(placement.sharing, (Pairs{{mixed, one}, {first, mixed}, {second, mixed}, {branch, joined}}));
  EXPECT_TRUE(placement.report.near_misses.empty());
}

TEST(Annotation, MaxPoolingKeepsParametersAndAveragesHaveTheirOwn) {
  for (const bool tflite : {false, true}) {
    Builder b;
    Value* one = b.relu(b.conv(b.x, "conv1"));
    Value* pooled = b.pool(one);
    Value* averaged = b.average(pooled);
    Value* flat = b.call("aten::flatten.using_ints", {averaged});
    Value* last = b.conv(flat, "conv2");
    const Annotation placement = b.done(last, tflite ? Recipe::tflite_int8() : Recipe::x86_int8());
    EXPECT_EQ(placement.observed, tflite ? (Values{b.x, one, last}) : (Values{b.x, one, averaged}));
    EXPECT_EQ(placement.sharing, tflite ? (Pairs{{pooled, one}, {averaged, pooled}, {flat, averaged}})
                                        : (Pairs{{pooled, one}, {flat, averaged}}));
    EXPECT_TRUE(placement.report.near_misses.empty());
  }
}

TEST(Annotation, AnAverageThatOnlyACatReadsTakesItsParameters) {
  Builder b;
  Value* one = b.conv(b.x, "conv1");
  Value* two = b.conv(one, "conv2");
  Value* averaged = b.average(one);
  Value* joined = b.cat({two, averaged});
  const Annotation placement = b.done(b.conv(joined, "last"));
  EXPECT_EQ(placement.observed, (Values{b.x, one, joined}));
  EXPECT_EQ(placement.sharing, (Pairs{{two, joined}, {averaged, joined}}));
}

TEST(Annotation, AveragesAreResultsThatSumsTake) {
  Builder b;
  Value* one = b.conv(b.x, "conv1");
  Value* averaged = b.average(b.relu(b.conv(one, "conv2")));
  Value* sum = b.add(b.pool(one), averaged);
  const Annotation placement = b.done(b.conv(sum, "conv3"));
  EXPECT_EQ(chains(placement), (Names{"conv1", "conv2 + relu", "add", "conv3"}));
  EXPECT_NE(std::ranges::find(placement.observed, averaged), placement.observed.end());
}

TEST(Annotation, AnAverageOfFloatsAndASkippedOneStayFloat) {
  for (const bool skipped : {false, true}) {
    Builder b;
    Value* one = b.conv(b.x, "conv1");
    Value* averaged = b.average(skipped ? one : b.call("aten::exp", {one}));
    Recipe recipe = Recipe::x86_int8();
    if (skipped) recipe.skip_values = {averaged->name};
    const Annotation placement = b.done(b.conv(averaged, "conv2"), recipe);
    EXPECT_EQ(placement.observed, (Values{b.x, averaged}));
    EXPECT_EQ(placement.report.near_misses.front(),
              std::string("adaptive_avg_pool2d (aten::adaptive_avg_pool2d) not quantized: ") +
                  (skipped ? "the recipe skips it" : "operand 'exp' is no result of a quantized op"));
  }
}

TEST(Annotation, ResultsThatNoQuantizedOpReadsStayFloat) {
  Builder b;
  Value* one = b.conv(b.x, "conv1");
  const Annotation placement = b.done(b.pool(b.call("aten::elu", {one})));
  EXPECT_EQ(placement.observed, (Values{b.x}));
  EXPECT_EQ(placement.report.near_misses,
            (Names{"elu (aten::elu) not quantized: it has no quantized form",
                   "max_pool2d (aten::max_pool2d) not quantized: no quantized op reads its result"}));
}

TEST(Annotation, AResultWithTwoReadersIsNotFused) {
  Builder b;
  Value* one = b.conv(b.x, "conv1");
  Value* positive = b.relu(one);
  Value* two = b.conv(positive, "conv2");
  Value* three = b.conv(one, "conv3");
  const Annotation placement = b.done(b.add(two, three));
  EXPECT_EQ(chains(placement), (Names{"conv1", "conv2 + add", "conv3"}));
  EXPECT_EQ(placement.observed, (Values{b.x, one, three}));
  ASSERT_EQ(placement.sharing.size(), 1U);  // the relu works on conv1's codes
  EXPECT_EQ(placement.sharing[0].first, positive);
}

TEST(Annotation, AddOfQuantizedResultsStandsAlone) {
  Builder b;
  Value* one = b.conv(b.x, "conv1");
  Value* two = b.pool(b.relu(b.conv(one, "conv2")));
  Value* sum = b.relu(b.add(one, two));
  const Annotation placement = b.done(b.conv(sum, "conv3"));
  EXPECT_EQ(chains(placement), (Names{"conv1", "conv2 + relu", "add + relu", "conv3"}));
}

TEST(Annotation, AddsThatCannotRunOnIntegersSayWhy) {
  Builder b;
  Value* one = b.conv(b.x, "conv1");
  Value* scaled = b.call("aten::add.Tensor", {one, b.x, c10::IValue(0.5)});
  Value* two = b.conv(scaled, "conv2");
  Value* narrow = b.call("aten::sigmoid", {b.x});
  narrow->meta = Builder::image(1);
  Value* broadcast = b.add(two, narrow);
  Value* outside = b.add(b.call("aten::tanh", {b.x}), b.x);
  const Annotation placement = b.done(b.add(broadcast, outside));
  const auto& lines = placement.report.near_misses;
  const auto has = [&](const std::string& line) { return std::count(lines.begin(), lines.end(), line) == 1; };
  EXPECT_TRUE(has("add (aten::add) not quantized: its alpha is not 1")) << testing::PrintToString(lines);
  EXPECT_TRUE(has("add_1 (aten::add) not quantized: its operands differ in shape"))
      << testing::PrintToString(lines);
  EXPECT_TRUE(has("add_2 (aten::add) not quantized: operand 'tanh' is no result of a quantized op"))
      << testing::PrintToString(lines);
}

TEST(Annotation, Relu6InBothSpellingsAndNoOtherClamp) {
  Builder b;
  Value* one = b.call("aten::relu6", {b.conv(b.x, "conv1")});
  Value* two = b.call("aten::hardtanh", {b.conv(one, "conv2"), c10::IValue(0.0), c10::IValue(6.0)});
  Value* three = b.call("aten::hardtanh", {b.conv(two, "conv3")});
  const Annotation placement = b.done(b.conv(three, "conv4"));
  EXPECT_EQ(chains(placement), (Names{"conv1 + relu6", "conv2 + relu6", "conv3", "conv4"}));
  EXPECT_EQ(placement.observed, (Values{b.x, one, two, three}));
}

TEST(Annotation, ClampsFuseByTheirBounds) {
  Builder b;
  Value* one = b.call("aten::clamp", {b.conv(b.x, "conv1"), c10::IValue(0.0), c10::IValue(6.0)});
  Value* two = b.call("aten::clamp_min", {b.conv(one, "conv2"), c10::IValue(0.0)});
  Value* three = b.call("aten::clamp", {b.conv(two, "conv3"), c10::IValue(0.0), c10::IValue(5.0)});
  const Annotation placement = b.done(b.conv(three, "conv4"));
  EXPECT_EQ(chains(placement), (Names{"conv1 + relu6", "conv2 + relu", "conv3", "conv4"}));
  EXPECT_EQ(placement.observed, (Values{b.x, one, two, three}));
}

TEST(Annotation, CurvesBelongToTheLayerBeforeThem) {
  Builder b;
  Value* curved = b.call("aten::gelu", {b.conv(b.x, "conv1")});
  const Annotation placement = b.done(b.conv(curved, "conv2"));
  EXPECT_EQ(chains(placement), (Names{"conv1 + gelu", "conv2"}));
  EXPECT_EQ(placement.observed, (Values{b.x, curved}));
}

TEST(Annotation, CurvesWithCodesOfTheirOwnStayApart) {
  Builder b;
  Value* made = b.conv(b.x, "conv1");
  Value* gate = b.call("aten::sigmoid", {made});
  Value* last = b.conv(gate, "conv2");
  const Annotation placement = b.done(last, Recipe::tflite_int8());
  EXPECT_EQ(chains(placement), (Names{"conv1", "sigmoid", "conv2"}));
  EXPECT_EQ(placement.observed, (Values{b.x, made, gate, last}));
}

TEST(Annotation, TfliteRoundsBeforeSumsAndCurvesAndAtTheEnd) {
  Builder b;
  Value* one = b.relu(b.conv(b.x, "conv1"));
  Value* two = b.conv(one, "conv2");
  Value* sum = b.relu(b.call("aten::add.Tensor", {two, one}));
  Value* three = b.conv(sum, "conv3");
  Value* curved = b.call("aten::hardswish", {three});
  Value* last = b.conv(curved, "conv4");
  const Annotation placement = b.done(last, Recipe::tflite_int8());
  EXPECT_EQ(chains(placement), (Names{"conv1 + relu", "conv2", "add + relu", "conv3", "conv4"}));
  EXPECT_EQ(placement.observed, (Values{b.x, one, two, sum, three, curved, last}));
}

TEST(Annotation, ProductsOfResultsGoFromCodesToCodes) {
  Builder b;
  Value* x = b.call("aten::hardswish", {b.conv(b.x, "conv1")});
  Value* mean = b.average(x);
  Value* gate = b.call("aten::hardsigmoid", {b.conv(mean, "conv2")});
  Value* product = b.call("aten::mul.Tensor", {x, gate});
  const Annotation placement = b.done(b.conv(product, "conv3"));
  EXPECT_EQ(chains(placement), (Names{"conv1 + hardswish", "conv2 + hardsigmoid", "conv3"}));
  EXPECT_EQ(placement.observed, (Values{b.x, x, mean, gate, product}));
}

TEST(Annotation, CurvesInsideAProductHaveNoCodes) {
  Builder b;
  Value* x = b.conv(b.x, "conv1");
  Value* product = b.call("aten::mul.Tensor", {x, b.call("aten::sigmoid", {x})});
  const Annotation placement = b.done(b.conv(product, "conv2"));
  EXPECT_EQ(chains(placement), (Names{"conv1", "conv2"}));
  EXPECT_EQ(placement.observed, (Values{b.x, x, product}));
}

TEST(Annotation, WhatFollowsAProductAloneIsOneStepWithIt) {
  for (const char* op : {"aten::hardswish", "aten::relu"}) {
    Builder b;
    Value* x = b.conv(b.x, "conv1");
    Value* gate = b.call("aten::hardsigmoid", {b.conv(b.x, "conv2")});
    Value* last = b.call(op, {b.call("aten::mul.Tensor", {x, gate})});
    const Annotation placement = b.done(b.conv(last, "conv3"));
    EXPECT_EQ(placement.observed, (Values{b.x, x, gate, last})) << op;
  }
}

TEST(Annotation, ProductsWithWhatHasNoCodesStayFloat) {
  Builder b;
  Value* product = b.call("aten::mul.Tensor", {b.conv(b.x, "conv1"), b.x});
  const Annotation placement = b.done(b.conv(product, "conv2"));
  EXPECT_EQ(placement.observed, (Values{b.x, product}));
}

Value* attend(Builder& b, Value* q, Value* k, Value* v) {
  const auto turned = [&](Value* x) {
    return b.call("aten::transpose.int", {x, c10::IValue(int64_t{1}), c10::IValue(int64_t{2})});
  };
  return b.call("aten::scaled_dot_product_attention",
                {turned(q), turned(k), turned(v), c10::IValue(), c10::IValue(0.0), c10::IValue(false)});
}

TEST(Annotation, AttentionReadsTheCodesOfTheLayersBehindItsOperands) {
  Builder b;
  Value *q = b.conv(b.x, "q"), *k = b.conv(b.x, "k"), *v = b.conv(b.x, "v");
  Value* mixed = attend(b, q, k, v);
  const Annotation placement = b.done(b.conv(mixed, "out"));
  EXPECT_EQ(placement.observed, (Values{b.x, q, k, v, mixed}));
  EXPECT_EQ(placement.report.changes.back(), mixed->producer->name() + ": attention quantized");
}

TEST(Annotation, AttentionStaysFloatWhereAnOperandIsOrTheRecipeSaysSo) {
  Builder b;
  Value *q = b.conv(b.x, "q"), *k = b.conv(b.x, "k");
  Value* scaled = b.call("aten::div.Tensor", {q, b.graph.add_input("by")});
  Value *one = attend(b, scaled, k, k), *two = attend(b, q, k, k);
  Recipe recipe = Recipe::x86_int8();
  recipe.skip_values = {two->producer->name()};
  const Annotation skipped = b.done(b.add(one, two), recipe);
  EXPECT_EQ(skipped.observed, Values{b.x});
  const auto& misses = skipped.report.near_misses;
  const auto has = [&](const std::string& text) {
    return std::any_of(misses.begin(), misses.end(),
                       [&](const std::string& miss) { return miss.ends_with(text); });
  };
  EXPECT_TRUE(has("operand '" + scaled->name + "' is no result of a quantized op"));
  EXPECT_TRUE(has("(aten::scaled_dot_product_attention) not quantized: the recipe skips it"));
  recipe = Recipe::x86_int8();
  EXPECT_EQ(annotate(b.graph, recipe).observed, (Values{b.x, q, k}));
  recipe.backend = Backend::onnx_qdq;  // as fields over the recipe at hand make it
  EXPECT_EQ(annotate(b.graph, recipe).observed, Values{b.x});
  recipe = Recipe::x86_int8();
  std::erase(recipe.ops, "scaled_dot_product_attention");
  EXPECT_EQ(annotate(b.graph, recipe).observed, Values{b.x});
}

TEST(Annotation, LayersThatCannotBeQuantizedSayWhy) {
  Builder b;
  Value* computed = b.call("aten::sigmoid", {b.x});
  Value* one = b.call("aten::conv2d", {b.x, computed, c10::IValue()}, "dynamic");
  Recipe recipe = Recipe::x86_int8();
  recipe.ops = {"conv2d"};
  b.graph.set_attribute("fc.weight", {Attribute::Kind::parameter, torch::ones({4, 8})});
  Value* two = b.call("aten::linear", {one, b.graph.attribute("fc.weight"), c10::IValue()}, "fc");
  const Annotation placement = b.done(two, recipe);
  EXPECT_TRUE(placement.chains.empty());
  EXPECT_EQ(placement.report.near_misses[0],
            "dynamic (aten::conv2d) not quantized: its weight is computed, not stored");
  EXPECT_EQ(placement.report.near_misses[1],
            "fc (aten::linear) not quantized: the recipe leaves this op out");
}

}  // namespace
}  // namespace ulp::quant
