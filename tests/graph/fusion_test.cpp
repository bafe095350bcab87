// The one matcher of chains, and the one reader of the table of activations.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <charconv>
#include <limits>

#include "ulp/graph/describe.h"
#include "ulp/graph/fusion/activation_of.h"
#include "ulp/graph/fusion/chain.h"

namespace ulp::graph {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Graphs written by hand: every value is f32[N, 4, 8, 8] unless a test says otherwise.
struct Sketch {
  Graph graph;
  Value* x = graph.add_input("x");

  Sketch() { x->meta = image(); }
  static TensorMeta image(int64_t channels = 4) {
    return {at::kFloat, {{1, 1, 0}, {0, 1, channels}, {0, 1, 8}, {0, 1, 8}}, false};
  }
  Node* call(const std::string& target, std::vector<Argument> args, const std::string& scope = "") {
    Node* node = graph.call(target, std::move(args));
    node->scope = scope;
    node->output()->meta = image();
    return node;
  }
  Value* conv(Value* input, const std::string& name) {
    graph.set_attribute(name + ".weight", {Attribute::Kind::parameter, torch::ones({4, 4, 1, 1})});
    return call("aten::conv2d", {input, graph.attribute(name + ".weight"), c10::IValue()}, name)->output();
  }
  Value* add(Value* a, Value* b) { return call("aten::add.Tensor", {a, b})->output(); }
  Value* relu(Value* input) { return call("aten::relu", {input})->output(); }
  Fusion found(Value* result, FusionPolicy policy = everything()) {
    graph.set_output(result);
    return find_chains(graph, policy);
  }
  static FusionPolicy everything() {
    return {.is_layer = [](const Node& node) { return node.is("aten::conv2d"); },
            .refuses_add = {},
            .takes_activation = [](const Node&, Activation) { return true; }};
  }
};

using Lines = std::vector<std::string>;

Lines chains(const Fusion& fusion) {
  Lines lines;
  for (const Chain& chain : fusion.chains) lines.push_back(chain.describe());
  return lines;
}
Lines misses(const Fusion& fusion) {
  Lines lines;
  for (const NearMiss& miss : fusion.near_misses) lines.push_back(miss.describe());
  return lines;
}

Argument literal_of(const std::string& word) {
  double number = 0;
  const bool is_number = std::from_chars(word.data(), word.data() + word.size(), number).ec == std::errc();
  return is_number ? Argument(c10::IValue(number)) : Argument(c10::IValue(word));
}

/// A call as the spelling says: "aten::gelu(approximate=tanh)".
Node* spelled(Sketch& sketch, const std::string& spelling, const std::string& suffix = "") {
  const size_t open = spelling.find('(');
  Node* node = sketch.call(spelling.substr(0, open) + suffix, {sketch.x});
  std::string rest = open == std::string::npos ? "" : spelling.substr(open + 1);
  while (rest.find('=') != std::string::npos) {
    const size_t equals = rest.find('='), end = rest.find_first_of(",)");
    node->arg(rest.substr(0, equals)) = literal_of(rest.substr(equals + 1, end - equals - 1));
    rest = rest.substr(end + 1);
  }
  return node;
}

TEST(ActivationOf, ReadsEverySpellingOfTheTable) {
  for (int i = 1; i < kActivationCount; ++i) {
    Sketch sketch;
    EXPECT_EQ(activation_of(*spelled(sketch, kActivations[i].spelling)), static_cast<Activation>(i))
        << kActivations[i].name;
    EXPECT_EQ(activation_of(*spelled(sketch, kActivations[i].spelling, "_")), static_cast<Activation>(i))
        << kActivations[i].name << " in place";
  }
}

Argument bound(float value) {
  return std::isinf(value) ? Argument(c10::IValue()) : Argument(c10::IValue(static_cast<double>(value)));
}

TEST(ActivationOf, KnowsEveryClampOfTheTableByItsBounds) {
  for (int i = 1; i < kActivationCount; ++i) {
    const ActivationInfo& info = kActivations[i];
    if (info.kind != ActivationKind::clamp) continue;
    Sketch sketch;
    Value* x = sketch.x;
    const double low = info.low, high = info.high;
    std::vector<Node*> spellings = {sketch.call("aten::clamp", {x, bound(info.low), bound(info.high)}),
                                    sketch.call("aten::clip", {x, bound(info.low), bound(info.high)}),
                                    sketch.call("aten::clamp_", {x, bound(info.low), bound(info.high)}),
                                    sketch.call("aten::hardtanh", {x, c10::IValue(low), c10::IValue(high)})};
    if (info.high == kInfinity) spellings.push_back(sketch.call("aten::clamp_min", {x, c10::IValue(low)}));
    if (info.low == -kInfinity) spellings.push_back(sketch.call("aten::clamp_max", {x, c10::IValue(high)}));
    for (const Node* node : spellings) {
      EXPECT_EQ(activation_of(*node), static_cast<Activation>(i)) << info.name << ' ' << node->target();
      EXPECT_TRUE(is_clamp(*node));
    }
  }
}

TEST(ActivationOf, WholeNumbersAreBoundsToo) {
  Sketch sketch;
  Node* node = sketch.call("aten::clamp", {sketch.x, c10::IValue(int64_t{0}), c10::IValue(int64_t{6})});
  EXPECT_EQ(activation_of(*node), Activation::relu6);
}

TEST(ActivationOf, NothingElseIsOne) {
  Sketch sketch;
  Value* x = sketch.x;
  const std::vector<Node*> others = {sketch.call("aten::hardtanh", {x}),
                                     sketch.call("aten::clamp", {x, c10::IValue(0.0), c10::IValue(5.0)}),
                                     sketch.call("aten::clamp", {x, c10::IValue(), c10::IValue(6.0)}),
                                     sketch.call("aten::clamp.Tensor", {x, x, x}),
                                     sketch.call("aten::clamp_min", {x, c10::IValue(1.0)}),
                                     sketch.call("aten::clamp_min.Tensor", {x, x}),
                                     sketch.call("aten::sin", {x}),
                                     x->producer};
  for (const Node* node : others) EXPECT_EQ(activation_of(*node), std::nullopt) << describe(*node);
  EXPECT_FALSE(is_clamp(*sketch.call("aten::tanh", {x})));
}

TEST(Chains, OfTwoLayersTheFirstTakesTheSum) {
  for (const bool first_operand : {true, false}) {
    Sketch s;
    Value* two = s.conv(s.x, "conv2");
    Value* down = s.conv(s.x, "down");
    const Fusion fusion = s.found(s.relu(first_operand ? s.add(two, down) : s.add(down, two)));
    EXPECT_EQ(chains(fusion), (Lines{"conv2 + add + relu", "down"}));
    EXPECT_EQ(fusion.chains[0].residual(), down);
    EXPECT_EQ(fusion.chains[0].kind, Activation::relu);
    EXPECT_EQ(fusion.chains[0].last()->name(), "relu");
    EXPECT_TRUE(fusion.near_misses.empty());
  }
}

TEST(Chains, AnAddWithoutALayerIsOneOfItsOwn) {
  Sketch s;
  Value* sum = s.add(s.relu(s.x), s.x);
  EXPECT_EQ(chains(s.found(s.call("aten::clamp", {sum, c10::IValue(0.0), c10::IValue(6.0)})->output())),
            (Lines{"add + relu6"}));
}

TEST(Chains, AskThePolicyAboutLayersSumsAndActivations) {
  const auto build = [](Sketch& s) { return s.relu(s.add(s.conv(s.x, "stem"), s.x)); };
  Sketch no_layers, no_sums, no_activations;
  FusionPolicy policy = Sketch::everything();
  policy.is_layer = [](const Node&) { return false; };
  EXPECT_EQ(chains(no_layers.found(build(no_layers), policy)), (Lines{"add + relu"}));
  policy = Sketch::everything();
  policy.refuses_add = [](const Node&) { return "the recipe skips it"; };
  const Fusion fusion = no_sums.found(build(no_sums), policy);
  EXPECT_EQ(chains(fusion), (Lines{"stem"}));
  EXPECT_EQ(misses(fusion), (Lines{"aten::add.Tensor 'add' not fused into aten::conv2d 'conv2d' in stem: the "
                                   "recipe skips it"}));
  policy = Sketch::everything();
  policy.takes_activation = [](const Node&, Activation) { return false; };
  EXPECT_EQ(chains(no_activations.found(build(no_activations), policy)), (Lines{"stem + add"}));
}

/// The reason of the only near miss behind a convolution.
std::string reason(const std::function<Value*(Sketch&, Value*)>& body) {
  Sketch s;
  const Fusion fusion = s.found(body(s, s.conv(s.x, "stem")));
  EXPECT_EQ(fusion.near_misses.size(), 1U) << testing::PrintToString(misses(fusion));
  return fusion.near_misses.empty() ? "" : fusion.near_misses[0].reason;
}

TEST(NearMisses, SayWhy) {
  EXPECT_EQ(reason([](Sketch& s, Value* y) {
              return s.call("aten::cat", {Argument::list({s.relu(y), y}), c10::IValue(int64_t{1})})->output();
            }),
            "its result is also read by aten::cat 'cat'");
  EXPECT_EQ(reason([](Sketch& s, Value* y) {
              return s.call("aten::max_pool2d", {y, c10::IValue(std::vector<int64_t>{2, 2})})->output();
            }),
            "no step of the engine ends in a pooling");
  EXPECT_EQ(reason([](Sketch& s, Value* y) { return s.call("aten::elu", {y})->output(); }),
            "no step of this kind ends in aten::elu");
  EXPECT_EQ(reason([](Sketch& s, Value* y) {
              return s.call("aten::clamp", {s.relu(y), c10::IValue(-1.0), c10::IValue(6.0)})->output();
            }),
            "that step has an activation already");
  EXPECT_EQ(reason([](Sketch& s, Value* y) {
              return s.call("aten::add.Tensor", {y, s.x, c10::IValue(0.5)})->output();
            }),
            "its alpha is not 1");
  EXPECT_EQ(reason([](Sketch& s, Value* y) {
              Value* narrow = s.call("aten::sigmoid", {s.x})->output();
              narrow->meta = Sketch::image(1);
              return s.add(y, narrow);
            }),
            "its operands differ in shape");
  EXPECT_EQ(reason([](Sketch& s, Value* y) {
              s.graph.set_attribute("shift", {Attribute::Kind::parameter, torch::ones({4, 8, 8})});
              Value* shift = s.graph.attribute("shift");
              shift->meta = Sketch::image();
              return s.add(y, shift);
            }),
            "it adds a parameter");
  EXPECT_EQ(reason([](Sketch& s, Value* y) { return s.add(s.relu(y), s.x); }),
            "that step ends in an activation");
  EXPECT_EQ(reason([](Sketch& s, Value* y) { return s.add(s.add(y, s.x), s.x); }),
            "that step has an add already");
}

TEST(NearMisses, ASumOfAResultWithItself) {
  Sketch s;
  Value* y = s.conv(s.x, "stem");
  const Fusion fusion = s.found(s.add(y, y));
  EXPECT_EQ(chains(fusion), (Lines{"stem", "add"}));
  EXPECT_EQ(fusion.near_misses[0].reason, "it reads that result twice");
}

TEST(NearMisses, AResultOfTheModelIsNotFusedAway) {
  Sketch s;
  Value* y = s.conv(s.x, "stem");
  Value* positive = s.relu(y);
  s.graph.set_output(Argument::tuple({y, positive}));
  EXPECT_EQ(find_chains(s.graph, Sketch::everything()).near_misses[0].reason,
            "its result is a result of the model");
}

TEST(Describe, NamesOpValueAndModule) {
  Sketch s;
  const Node& conv = *s.conv(s.x, "stem")->producer;
  const Node& relu = *s.relu(conv.output())->producer;
  EXPECT_EQ(describe(conv), "aten::conv2d 'conv2d' in stem");
  EXPECT_EQ(describe(relu), "aten::relu 'relu'");
  EXPECT_EQ(describe(*s.x->producer), "input 'x'");
  EXPECT_EQ(label(conv), "stem");
  EXPECT_EQ(label(relu), "relu");
}

}  // namespace
}  // namespace ulp::graph
