// The page of the whole road: what works, what stops where, and that the model stays as it was.
#include "ulp/app/check/road_report.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "error_of.h"
#include "ulp/graph/capture/capture.h"

namespace ulp {
namespace {

using torch::Tensor;
namespace nn = torch::nn;

/// A classifier of images that every step takes.
struct RoadImages : nn::Module {
  nn::Conv2d conv = register_module("conv", nn::Conv2d(nn::Conv2dOptions(3, 16, 3).padding(1).bias(false)));
  nn::BatchNorm2d norm = register_module("norm", nn::BatchNorm2d(16));
  nn::Conv2d next = register_module("next", nn::Conv2d(nn::Conv2dOptions(16, 16, 3).padding(1)));
  nn::Linear hidden = register_module("hidden", nn::Linear(16, 32)),
             fc = register_module("fc", nn::Linear(32, 4));
  Tensor forward(const Tensor& x) {
    const Tensor y = torch::relu(next(torch::relu(norm(conv(x))))).mean({2, 3});
    return fc(torch::relu(hidden(y)));
  }
};

/// The part of a model that has a call which no engine and no file knows.
struct RoadStranger : nn::Module {
  nn::Linear first = register_module("first", nn::Linear(6, 16)),
             last = register_module("last", nn::Linear(16, 3));
  Tensor forward(const Tensor& x) { return last(torch::renorm(torch::relu(first(x)), 2, 0, 1)); }
};
struct RoadStops : nn::Module {
  std::shared_ptr<RoadStranger> body = register_module("body", std::make_shared<RoadStranger>());
  Tensor forward(const Tensor& x) { return body->forward(x); }
};

/// Ids, a mask of flags and a free length.
struct RoadTexts : nn::Module {
  nn::Embedding words = register_module("words", nn::Embedding(11, 8)),
                kinds = register_module("kinds", nn::Embedding(2, 8));
  nn::Linear fc = register_module("fc", nn::Linear(8, 3));
  Tensor forward(const Tensor& ids, const Tensor& kind, const Tensor& mask) {
    const Tensor y = words(ids) + kinds(kind);
    return fc((y * mask.unsqueeze(2).to(torch::kFloat)).mean(1));
  }
};

template <typename Net>
std::shared_ptr<graph::GraphModule> road_model(const std::vector<Tensor>& examples,
                                               const graph::CaptureOptions& options = {}) {
  torch::manual_seed(1);
  auto net = std::make_shared<Net>();
  return capture(net, examples, options);
}

std::shared_ptr<graph::GraphModule> road_images() {
  return road_model<RoadImages>({torch::randn({2, 3, 8, 8})});
}

std::string text_of(const RoadReport& report) {
  std::ostringstream out;
  out << report;
  return out.str();
}

TEST(RoadReport, AUsualNetworkGoesAllTheWay) {
  const auto model = road_images();
  const RoadReport report = road_report(*model);
  EXPECT_TRUE(report.works()) << text_of(report);
  EXPECT_EQ(report.steps.size(), road_goals().size());
  EXPECT_EQ(report.inputs, std::vector<std::string>{"input Float[N, 3, 8, 8]"});
  ASSERT_EQ(report.results.size(), 1u);
  EXPECT_SAYS(report.results[0], "Float[N, 4]");
  for (const char* goal : {"run",
                           "train:fp32",
                           "train:bf16",
                           "train:fp16",
                           "train:O2:bf16",
                           "train:O3:bf16",
                           "train:fp8:delayed",
                           "train:nvfp4",
                           "train:int8",
                           "engine",
                           "engine:bf16",
                           "pieces",
                           "int8",
                           "dynamic",
                           "weight_only",
                           "weight_only:4",
                           "qat",
                           "prune",
                           "distill",
                           "onnx",
                           "onnx_qdq",
                           "tflite",
                           "tflite_int8",
                           "coreml",
                           "pt2"})
    EXPECT_NE(report.find(goal), nullptr) << goal;
  EXPECT_EQ(report.find("train:O0"), nullptr);  // another name of fp32
  EXPECT_SAYS(report.find("train:fp32")->says, "gradients of 9 of 9 parameters");
  EXPECT_SAYS(report.find("prune")->says, "3 groups cut by 30 %");
  EXPECT_SAYS(report.find("pieces")->says, "1 engine and 0 pieces in LibTorch");
}

TEST(RoadReport, SaysWhatStopsWhere) {
  const auto model = road_model<RoadStops>({torch::randn({2, 6})});
  const RoadReport report = road_report(*model);
  EXPECT_FALSE(report.works());
  std::string node;
  for (const auto& one : model->graph().nodes()) {
    if (one->is("aten::renorm")) node = one->name();
  }
  ASSERT_FALSE(node.empty());
  for (const char* goal : {"engine", "engine:bf16", "onnx", "tflite", "coreml"}) {
    const RoadStep& step = *report.find(goal);
    EXPECT_FALSE(step.works) << goal;
    ASSERT_EQ(step.stops.size(), 1u) << goal << ": " << step.says;
    EXPECT_EQ(step.stops[0].node, node) << goal;
    EXPECT_TRUE(step.stops[0].op.starts_with("aten::renorm")) << step.stops[0].op;
    EXPECT_SAYS(step.says, "renorm");
  }
  for (const char* goal : {"run", "train:fp32", "train:bf16", "pieces", "pt2", "distill"})
    EXPECT_TRUE(report.find(goal)->works) << goal << ": " << report.find(goal)->says;
  // What works in part says what stays.
  EXPECT_SAYS(report.find("pieces")->says, "1 piece in LibTorch");
  ASSERT_FALSE(report.find("pieces")->left.empty());
  EXPECT_SAYS(report.find("pieces")->left[0], "renorm");
  EXPECT_FALSE(report.find("prune")->works);
  EXPECT_SAYS(report.find("prune")->says, "aten::renorm");
  const std::string text = text_of(report);
  EXPECT_SAYS(text, "works  train:fp32 ");
  EXPECT_SAYS(text, "stops  onnx ");
  EXPECT_SAYS(text, "      at aten::renorm '" + node + "'");
}

TEST(RoadReport, LeavesModelAndRandomNumbersAsTheyWere) {
  const auto model = road_images();
  model->train();
  std::map<std::string, Tensor> before;
  for (const auto& [name, attribute] : model->graph().attributes())
    before[name] = attribute.tensor.detach().clone();
  std::ostringstream graph;
  graph << model->graph();
  torch::manual_seed(7);
  const Tensor next = torch::rand({4});
  torch::manual_seed(7);
  const RoadReport first = road_report(*model);
  EXPECT_TRUE(torch::equal(torch::rand({4}), next));
  EXPECT_TRUE(model->is_training());
  for (const auto& [name, attribute] : model->graph().attributes()) {
    EXPECT_TRUE(torch::equal(attribute.tensor, before.at(name))) << name;
    EXPECT_FALSE(attribute.tensor.grad().defined()) << name;
  }
  std::ostringstream after;
  after << model->graph();
  EXPECT_EQ(after.str(), graph.str());
  EXPECT_EQ(first.steps.size(), road_goals().size());
  const RoadOptions some{.goals = {"train:fp16", "int8", "prune"}};
  EXPECT_EQ(road_report(*model, some).to_json(), road_report(*model, some).to_json());
}

TEST(RoadReport, TakesIdsFlagsAndFreeLengths) {
  const auto model =
      road_model<RoadTexts>({torch::ones({2, 7}, torch::kLong), torch::ones({2, 7}, torch::kLong),
                             torch::ones({2, 7}, torch::kBool)},
                            {.free = {{0, 1, "time", 64}, {1, 1, "time", 64}, {2, 1, "time", 64}},
                             .input_names = {"ids", "kind", "mask"}});
  const RoadReport report = road_report(*model, {.goals = {"run", "train:fp32", "pt2"}});
  EXPECT_TRUE(report.works()) << text_of(report);
  EXPECT_EQ(report.inputs[0], "ids Long[N, time]");
  EXPECT_EQ(report.inputs[2], "mask Bool[N, time]");
  EXPECT_ERROR(road_report(*model, {.goals = {"run"}, .inputs = {torch::ones({2, 7})}}), "expected");
}

TEST(RoadReport, TriesTheNamedGoalsInTheOrderOfTheRoad) {
  const auto model = road_images();
  std::vector<std::string> seen;
  const RoadReport report =
      road_report(*model, {.goals = {"pt2", "train:*", "train", "pt2"},
                           .progress = [&](const std::string& goal, int64_t done, int64_t total) {
                             EXPECT_EQ(done, static_cast<int64_t>(seen.size()));
                             EXPECT_EQ(total, static_cast<int64_t>(road_goals({"train:*", "pt2"}).size()));
                             if (!goal.empty()) seen.push_back(goal);
                           }});
  ASSERT_EQ(report.steps.size(), seen.size());
  EXPECT_EQ(report.steps.front().goal, "train:fp32");
  EXPECT_EQ(report.steps.back().goal, "pt2");
  EXPECT_EQ(report.find("engine"), nullptr);
  ASSERT_EQ(road_goals({"train"}).size(), 1u);
  EXPECT_EQ(road_goals({"train"})[0].name, "train:fp32");
  EXPECT_GT(road_goals({"train:*"}).size(), 10u);
  EXPECT_ERROR(road_report(*model, {.goals = {"onxx"}}),
               "[road_report] expected goals of the road, got 'onxx'; the nearest are onnx");
  EXPECT_ERROR(road_report(*model, {.batch = 0}), "expected a batch of at least 1, got 0");
}

TEST(RoadReport, IsReadByMachines) {
  const auto model = road_model<RoadStops>({torch::randn({2, 6})});
  const auto json = nlohmann::json::parse(road_report(*model, {.goals = {"run", "onnx"}}).to_json());
  EXPECT_EQ(json["model"]["inputs"][0], "input Float[N, 6]");
  EXPECT_EQ(json["model"]["parameters"], 6 * 16 + 16 + 16 * 3 + 3);
  ASSERT_EQ(json["steps"].size(), 2u);
  EXPECT_EQ(json["steps"][0]["goal"], "run");
  EXPECT_EQ(json["steps"][0]["works"], true);
  EXPECT_EQ(json["steps"][1]["works"], false);
  EXPECT_EQ(json["steps"][1]["stops"][0]["op"].get<std::string>().substr(0, 12), "aten::renorm");
}

TEST(RoadReport, AModelWithoutNumbersStopsAtTheFirstStep) {
  struct Net : nn::Module {
    nn::Linear fc = register_module("fc", nn::Linear(3, 3));
    Tensor forward(const Tensor& x) { return torch::log(-fc(x).square() - 1); }
  };
  const auto model = road_model<Net>({torch::randn({2, 3})});
  const RoadReport report = road_report(*model, {.goals = {"run", "train:fp32"}});
  EXPECT_FALSE(report.find("run")->works);
  EXPECT_SAYS(report.find("run")->says, "expected finite results of the model, got inf or NaN in result 0");
  EXPECT_SAYS(report.find("train:fp32")->says, "expected a finite loss");
}

TEST(RoadReport, AModelWithoutTrainedParametersSaysSo) {
  struct Net : nn::Module {
    nn::Linear fc = register_module("fc", nn::Linear(3, 3));
    Tensor forward(const Tensor& x) { return fc(x); }
  };
  torch::manual_seed(1);
  auto net = std::make_shared<Net>();
  for (Tensor& parameter : net->parameters()) parameter.set_requires_grad(false);
  const auto model = capture(net, {torch::randn({2, 3})});
  const RoadReport report = road_report(*model, {.goals = {"train:fp32", "engine"}});
  EXPECT_SAYS(report.find("train:fp32")->says, "expected a parameter that is trained, got none");
  EXPECT_TRUE(report.find("engine")->works) << report.find("engine")->says;
}

}  // namespace
}  // namespace ulp
