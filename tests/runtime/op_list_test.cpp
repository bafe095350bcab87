// The list of ops: what holds for the attributes of each of them, whatever they are.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "ulp/base/error.h"
#include "ulp/runtime/plan/plan_json.h"
#include "ulp/runtime/plan/step_view.h"

namespace ulp::runtime {
namespace {

using Json = nlohmann::json;

/// Walks through numbers, flags and words, inside groups and lists, too: all that attributes are made of.
class AttributeVisitor : public FieldVisitor {
 protected:
  void on(const FieldInfo&, uint64_t&) override { ADD_FAILURE() << "no attribute has this kind"; }
  void on(const FieldInfo&, std::string&) override { ADD_FAILURE() << "no attribute has this kind"; }
  void on(const FieldInfo&, std::vector<std::string>&) override {
    ADD_FAILURE() << "no attribute has this kind";
  }
  void on_optional(const FieldInfo&, const OptionalField&) override {
    ADD_FAILURE() << "no attribute has this kind";
  }
  void on_custom(const FieldInfo&, const CustomField&) override {
    ADD_FAILURE() << "no attribute has this kind";
  }
  void on_group(const FieldInfo& info, const GroupField& group) override {
    const std::string outer = std::exchange(path_, path_ + info.name + ".");
    group.fields(*this);
    path_ = outer;
  }
  void on_list(const FieldInfo& info, const ListField& list) override {
    const std::string outer = path_;
    for (size_t i = 0; i < list.size; ++i) {
      path_ = outer + info.name + "[" + std::to_string(i) + "].";
      list.element(i, *this);
    }
    path_ = outer;
  }

  std::string path_;
};

/// Makes every field another value inside its limits; an empty list gets an element.
class Change final : public AttributeVisitor {
 protected:
  using AttributeVisitor::on;
  void on_list(const FieldInfo& info, const ListField& list) override {
    if (list.size == 0) list.resize(1);
    AttributeVisitor::on_list(info, {1, list.resize, list.element});
  }
  void on(const FieldInfo&, bool& value) override { value = !value; }
  void on(const FieldInfo&, int64_t& value) override { value += 2; }
  void on(const FieldInfo&, double& value) override { value += 0.5; }
  void on_choice(const FieldInfo&, ChoiceField& field) override {
    field.index = (field.index + 1) % field.words.size();
  }
  void on_text(const FieldInfo&, const TextField& field) override { EXPECT_TRUE(field.set("neg x0")); }
};

/// Puts the field of one path outside its limits, for each limit there is.
class Break final : public AttributeVisitor {
 public:
  Break(std::string path, bool high) : wanted_(std::move(path)), high_(high) {}
  bool broken = false;

 protected:
  using AttributeVisitor::on;
  void on(const FieldInfo&, bool&) override {}
  void on_choice(const FieldInfo&, ChoiceField&) override {}
  void on_text(const FieldInfo&, const TextField&) override {}
  void on(const FieldInfo& info, int64_t& value) override {
    const double limit = high_ ? info.max : info.min;
    if (path_ + info.name != wanted_ || std::abs(limit) > 1e18) return;
    value = static_cast<int64_t>(limit) + (high_ ? 1 : -1);
    broken = true;
  }
  void on(const FieldInfo& info, double& value) override {
    if (path_ + info.name != wanted_) return;
    value = high_ ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
    broken = true;
  }

 private:
  std::string wanted_;
  bool high_;
};

/// The paths of all fields: "window.kernel_h", "strides", "strides[0].size".
class Paths final : public AttributeVisitor {
 public:
  std::vector<std::string> all;
  std::set<std::string> lists;

 protected:
  void on_list(const FieldInfo& info, const ListField& list) override {
    all.push_back(path_ + info.name);
    lists.insert(all.back());
    AttributeVisitor::on_list(info, list);
  }
  using AttributeVisitor::on;
  void on(const FieldInfo& info, bool&) override { all.push_back(path_ + info.name); }
  void on(const FieldInfo& info, int64_t&) override { all.push_back(path_ + info.name); }
  void on(const FieldInfo& info, double&) override { all.push_back(path_ + info.name); }
  void on_choice(const FieldInfo& info, ChoiceField&) override { all.push_back(path_ + info.name); }
  void on_text(const FieldInfo& info, const TextField&) override { all.push_back(path_ + info.name); }
};

void visit(Attributes& attributes, FieldVisitor& visitor) {
  std::visit([&](auto& own) { own.visit_fields(visitor); }, attributes);
}

Attributes changed(Op op) {
  Attributes attributes = default_attributes(op);
  Change change;
  visit(attributes, change);
  return attributes;
}

Paths paths_of(Attributes attributes) {
  Paths paths;
  visit(attributes, paths);
  return paths;
}

std::vector<std::string> paths(Op op) {
  return paths_of(default_attributes(op)).all;
}

Plan plan_of(Op op, const Attributes& attributes) {
  Plan plan;
  plan.steps = {{.op = op, .name = "it", .attributes = attributes}};
  return plan;
}

/// The message that reading the plan gives; empty when it is read.
std::string read_problem(const Json& plan) {
  try {
    plan_from_json(plan.dump());
  } catch (const PlanProblem& found) {
    return found.text;
  }
  return {};
}

TEST(OpList, AttributesGoThroughFilesAndBack) {
  for (const Op op : kOps) {
    const Plan plan = plan_of(op, changed(op));
    EXPECT_EQ(plan.steps[0].attributes == default_attributes(op), paths(op).empty()) << to_string(op);
    const Plan back = plan_from_json(plan_to_json(plan));
    ASSERT_EQ(back.steps.size(), 1u);
    EXPECT_EQ(back.steps[0].op, op);
    EXPECT_EQ(back.steps[0].attributes, plan.steps[0].attributes) << to_string(op);
  }
}

TEST(OpList, FilesLeaveOutDefaults) {
  for (const Op op : kOps) {
    const Json plan = Json::parse(plan_to_json(plan_of(op, default_attributes(op))));
    const Json expected = {{"op", to_string(op)}, {"name", "it"}, {"inputs", Json::array()}, {"output", -1}};
    EXPECT_EQ(plan["steps"][0], expected);
    EXPECT_EQ(attributes_text(default_attributes(op)), "");
  }
}

TEST(OpList, AFieldThatAnOpHasNotIsRefusedByName) {
  std::set<std::string> all = {"surprise"};
  for (const Op op : kOps) {
    for (const std::string& path : paths(op)) all.insert(path.substr(0, path.find('.')));
  }
  for (const Op op : kOps) {
    std::set<std::string> own;
    for (const std::string& path : paths(op)) own.insert(path.substr(0, path.find('.')));
    for (const std::string& name : all) {
      if (own.contains(name)) continue;
      Json plan = Json::parse(plan_to_json(plan_of(op, default_attributes(op))));
      plan["steps"][0][name] = 1;
      EXPECT_EQ(read_problem(plan), std::string("step 0 'it' (") + to_string(op) +
                                        "): expected a known field, got '" + name + "'");
    }
  }
}

TEST(OpList, AValueOfAnotherKindIsRefusedByName) {
  for (const Op op : kOps) {
    const std::set<std::string> lists = paths_of(default_attributes(op)).lists;
    for (const std::string& path : paths(op)) {
      Json plan = Json::parse(plan_to_json(plan_of(op, default_attributes(op))));
      std::string pointer = "/" + path;
      std::ranges::replace(pointer, '.', '/');
      plan["steps"][0][Json::json_pointer(pointer)] = lists.contains(path) ? Json(1) : Json::array();
      const std::string text = read_problem(plan);
      EXPECT_EQ(text.find(std::string("step 0 'it' (") + to_string(op) + "): expected "), 0u) << text;
      EXPECT_NE(text.find("in '" + path + "', got"), std::string::npos) << text;
    }
  }
}

TEST(OpList, AValueOutsideItsLimitsIsRefusedByName) {
  int seen = 0;
  for (const Op op : kOps) {
    for (const std::string& path : paths_of(changed(op)).all) {
      for (const bool high : {false, true}) {
        Plan plan = plan_of(op, changed(op));
        Break wrong(path, high);
        visit(plan.steps[0].attributes, wrong);
        if (!wrong.broken) continue;
        ++seen;
        try {
          static_cast<void>(Plan().output_shape(plan.steps[0]));
          ADD_FAILURE() << to_string(op) << " takes a bad " << path;
        } catch (const Error& error) {
          const std::string start = std::string("[runtime.output_shape] step 0 'it' (") + to_string(op) +
                                    "): expected " + path + " ";
          EXPECT_EQ(std::string(error.what()).find(start), 0u) << error.what();
        }
      }
    }
  }
  EXPECT_GT(seen, 40);
}

TEST(OpList, AttributesOfAnotherOpAreRefused) {
  for (const Op op : kOps) {
    for (const Op other : kOps) {
      if (default_attributes(op).index() == default_attributes(other).index()) continue;
      const Plan plan = plan_of(op, default_attributes(other));
      try {
        static_cast<void>(Plan().output_shape(plan.steps[0]));
        ADD_FAILURE() << to_string(op) << " takes the attributes of " << to_string(other);
      } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("'it'"), std::string::npos) << error.what();
      }
    }
  }
}

TEST(OpList, AttributesAskedForByTheTypeOfAnotherOpAreRefusedByName) {
  const Step step{.op = Op::softmax, .name = "probabilities"};
  try {
    static_cast<void>(step.get<ConvAttributes>());
    ADD_FAILURE() << "softmax has the attributes of conv";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("'softmax', as step 'probabilities'"), std::string::npos)
        << error.what();
  }
}

TEST(OpList, FilesOfEarlierVersionsAreRead) {
  const auto read = [](const char* step) {
    Json plan = {{"tensors", Json::array()}, {"inputs", Json::array()}, {"outputs", Json::array()}};
    plan["steps"] = Json::array({Json::parse(step)});
    plan["steps"][0].update(Json::parse(R"({"name": "it", "inputs": [0], "output": 1})"));
    const Plan back = plan_from_json(plan.dump());
    EXPECT_EQ(Json::parse(plan_to_json(back)), plan);
    return back.steps.at(0);
  };
  EXPECT_EQ(
      read(R"({"op": "conv", "window": {"kernel_h": 3, "pad_w": 1}, "groups": 2, "activation": "relu6"})")
          .get<ConvAttributes>(),
      (ConvAttributes{{.kernel_h = 3, .pad_w = 1}, 2, Activation::relu6}));
  EXPECT_EQ(
      read(R"({"op": "avg_pool", "window": {"ceil_mode": true, "count_include_pad": false, "stride_h": 2}})")
          .get<PoolAttributes>(),
      (PoolAttributes{{{.stride_h = 2}, true, false}}));
  EXPECT_EQ(read(R"({"op": "slice", "begin": 1, "length": 4})").get<SliceAttributes>(),
            (SliceAttributes{1, 4}));
  EXPECT_EQ(
      read(R"({"op": "attention", "heads": 4, "scale": 0.125, "causal": true})").get<AttentionAttributes>(),
      (AttentionAttributes{4, 0.125F, true}));
  EXPECT_EQ(read(R"({"op": "gru", "per_tensor": true, "reverse": true})").get<RecurrentAttributes>(),
            (RecurrentAttributes{true, true}));
  EXPECT_EQ(
      read(R"({"op": "depth_to_space", "window": {"stride_h": 2, "stride_w": 3}, "size_h": 4, "size_w": 6})")
          .get<DepthToSpaceAttributes>(),
      (DepthToSpaceAttributes{{2, 3}, 4, 6}));
  EXPECT_EQ(read(R"({"op": "resize_bilinear", "size_h": 4, "size_w": 6, "align_corners": true})")
                .get<BilinearAttributes>(),
            (BilinearAttributes{4, 6, true}));
  EXPECT_EQ(read(R"({"op": "token_mask", "token": 3})").get<TokenAttributes>(), (TokenAttributes{3}));
  EXPECT_EQ(read(R"({"op": "layer_norm", "epsilon": 0.5})").get<LayerNormAttributes>(),
            (LayerNormAttributes{0.5F}));
}

TEST(OpList, TextShowsTheChangedAttributes) {
  EXPECT_EQ(attributes_text(ConvAttributes{{.kernel_h = 3}, 2, Activation::relu}),
            "activation=relu, groups=2, window.kernel_h=3");
  EXPECT_EQ(attributes_text(AttentionAttributes{.heads = 4, .causal = true}), "causal=true, heads=4");
  EXPECT_EQ(attributes_text(LayerNormAttributes{1e-5F}), "epsilon=1e-05");
}

TEST(OpList, ANumberThatIsNoOpHasNoNameAndNoAttributes) {
  const Op none = static_cast<Op>(kOps.size());
  EXPECT_FALSE(is_known(none));
  EXPECT_STREQ(to_string(none), "unknown");
  EXPECT_EQ(default_attributes(none), Attributes(NoAttributes{}));
}

}  // namespace
}  // namespace ulp::runtime
