// Structs, maps, tuples and lists of tensors as what forward takes and returns.
#include "ulp/graph/capture/tensors.h"

#include <sstream>

#include "same.h"

namespace {

using namespace ulp;
using namespace ulp::test;
namespace nn = torch::nn;

struct Detection {
  at::Tensor boxes, scores;
  ULP_TENSOR_FIELDS(boxes, scores)
};

struct Pyramid {
  at::Tensor fine, coarse;
  ULP_TENSOR_FIELDS(fine, coarse)
};

/// Fields listed by hand, one of them a struct.
struct Sample {
  at::Tensor image;
  Pyramid pyramid;
  void visit_tensors(graph::TensorVisitor& visit) {
    visit("image", image);
    visit("pyramid", pyramid);
  }
};

using ByName = std::map<std::string, at::Tensor>;

template <typename T>
concept CanBeCaptured = graph::MadeOfTensors<T>;

static_assert(CanBeCaptured<at::Tensor> && CanBeCaptured<Detection> && CanBeCaptured<Sample>);
static_assert(CanBeCaptured<std::tuple<Detection, std::pair<at::Tensor, ByName>>>);
static_assert(CanBeCaptured<std::vector<Detection>> && CanBeCaptured<std::array<at::Tensor, 2>>);
static_assert(CanBeCaptured<std::unordered_map<std::string, Detection>>);
static_assert(CanBeCaptured<c10::Dict<std::string, at::Tensor>>);
static_assert(!CanBeCaptured<int> && !CanBeCaptured<std::tuple<at::Tensor, int>>);
static_assert(!CanBeCaptured<std::map<int, at::Tensor>>);
static_assert(std::is_aggregate_v<Detection>);

/// As its author wrote it, but for the line in Detection.
struct DetectorImpl : nn::Module {
  DetectorImpl() {
    backbone = register_module("backbone", nn::Conv2d(nn::Conv2dOptions(3, 8, 3).stride(2).padding(1)));
    norm = register_module("norm", nn::BatchNorm2d(8));
    box_head = register_module("box_head", nn::Conv2d(nn::Conv2dOptions(8, 4, 1)));
    score_head = register_module("score_head", nn::Conv2d(nn::Conv2dOptions(8, 2, 1)));
  }
  Detection forward(const at::Tensor& images) {
    const at::Tensor features = torch::relu(norm(backbone(images)));
    return {box_head(features).flatten(2).transpose(1, 2), score_head(features).flatten(2).sigmoid()};
  }
  nn::Conv2d backbone{nullptr}, box_head{nullptr}, score_head{nullptr};
  nn::BatchNorm2d norm{nullptr};
};
TORCH_MODULE(Detector);

std::string listing_of(const graph::GraphModule& module) {
  std::ostringstream out;
  out << module.graph();
  return out.str();
}

TEST(TensorTypes, ADetectorReturnsItsStruct) {
  torch::manual_seed(1);
  Detector model;
  const auto module = ulp::capture(model, {torch::randn({2, 3, 8, 8})});
  for (const bool training : {false, true}) {
    model->train(training);
    module->train(training);
    const at::Tensor images = torch::randn({5, 3, 8, 8});
    const at::Tensor mean = model->norm->running_mean.clone();
    const Detection want = model(images);
    const Detection got = module->call<Detection>(images);
    EXPECT_TRUE(same_bits(want.boxes, got.boxes) && same_bits(want.scores, got.scores));
    EXPECT_NE(training, torch::equal(mean, model->norm->running_mean));
  }
  const auto by_name = module->call<ByName>(torch::randn({1, 3, 8, 8}));
  EXPECT_EQ(by_name.at("boxes").sizes(), (std::vector<int64_t>{1, 16, 4}));
  EXPECT_SAYS(listing_of(*module), "boxes");
  EXPECT_EQ(module->forward_all({torch::randn({1, 3, 8, 8})}).size(), 2);
  check(model, {torch::randn({3, 3, 8, 8})});
}

struct StructInAndOutImpl : nn::Module {
  nn::Linear fc = register_module("fc", nn::Linear(4, 4));
  Detection forward(const Sample& sample) {
    const at::Tensor y = fc(sample.image) + sample.pyramid.fine;
    return {.boxes = y * 2, .scores = (y + sample.pyramid.coarse).sigmoid()};
  }
};
TORCH_MODULE(StructInAndOut);

Sample sample_of(int64_t batch) {
  return {torch::randn({batch, 4}), {torch::randn({batch, 4}), torch::randn({batch, 1})}};
}

TEST(TensorTypes, AStructGoesInAndOut) {
  StructInAndOut model;
  const auto module = ulp::capture(model, sample_of(2),
                                   {.check = {graph::flatten(sample_of(9)), graph::flatten(sample_of(1))}});
  const auto inputs = module->graph().inputs();
  ASSERT_EQ(inputs.size(), 3);
  EXPECT_EQ(inputs[0]->name, "image");
  EXPECT_EQ(inputs[2]->name, "pyramid.coarse");
  const Sample sample = sample_of(6);
  const Detection want = model->forward(sample), got = module->call<Detection>(sample);
  EXPECT_TRUE(torch::equal(want.boxes, got.boxes) && torch::equal(want.scores, got.scores));
  const Tensors flat = module->forward_all(graph::flatten(sample));
  EXPECT_TRUE(torch::equal(flat.at(1), want.scores));
}

struct MapInAndOutImpl : nn::Module {
  nn::Linear fc = register_module("fc", nn::Linear(4, 4));
  ByName forward(ByName inputs) {
    return {{"sum", fc(inputs.at("x")) + inputs.at("mask")}, {"first", inputs.at("x").tanh()}};
  }
};
TORCH_MODULE(MapInAndOut);

TEST(TensorTypes, AMapGoesInAndOut) {
  MapInAndOut model;
  const auto module = ulp::capture(model, ByName{{"x", torch::randn({2, 4})}, {"mask", torch::ones({2, 4})}});
  EXPECT_EQ(module->graph().inputs()[0]->name, "mask") << "in the order of the keys";
  const ByName inputs{{"x", torch::randn({3, 4})}, {"mask", torch::randn({3, 4})}};
  const ByName want = model->forward(inputs), got = module->call<ByName>(inputs);
  ASSERT_EQ(got.size(), 2);
  for (const auto& [name, tensor] : want) EXPECT_TRUE(torch::equal(tensor, got.at(name))) << name;
  c10::Dict<std::string, at::Tensor> dict;
  dict.insert("x", inputs.at("x"));
  dict.insert("mask", inputs.at("mask"));
  const auto as_dict = module->call<c10::Dict<std::string, at::Tensor>>(dict);
  EXPECT_TRUE(torch::equal(as_dict.at("sum"), want.at("sum")));
}

struct NestedImpl : nn::Module {
  nn::Linear fc = register_module("fc", nn::Linear(4, 4));
  std::tuple<Detection, std::vector<Pyramid>, std::array<at::Tensor, 2>> forward(const Pyramid& pyramid,
                                                                                 const at::Tensor& x) {
    const at::Tensor y = fc(x);
    return {{y, pyramid.fine}, {{y * 2, y * 3}, {pyramid.coarse + y, x}}, {x.tanh(), y.relu()}};
  }
};
TORCH_MODULE(Nested);

TEST(TensorTypes, TuplesOfStructsAndListsOfThemNest) {
  Nested model;
  const auto inputs = [](int64_t batch) {
    return std::tuple{Pyramid{torch::randn({batch, 4}), torch::randn({batch, 4})}, torch::randn({batch, 4})};
  };
  const auto module = ulp::capture(model, inputs(3));
  EXPECT_EQ(module->graph().inputs()[1]->name, "input_0.coarse");
  EXPECT_EQ(module->graph().inputs()[2]->name, "input_1");
  const auto given = inputs(5);
  const auto want = std::apply([&](const auto&... each) { return model->forward(each...); }, given);
  const auto got = module->call<std::remove_cvref_t<decltype(want)>>(given);
  const Tensors expected = graph::flatten(want), actual = graph::flatten(got);
  ASSERT_EQ(actual.size(), 8);
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(torch::equal(expected[i], actual[i])) << i;
  EXPECT_TRUE(torch::equal(std::get<1>(got).at(1).fine, std::get<1>(want).at(1).fine));
}

struct TakesAListImpl : nn::Module {
  nn::Linear fc = register_module("fc", nn::Linear(4, 4));
  at::Tensor forward(const std::vector<at::Tensor>& levels) { return fc(torch::cat(levels, 1)); }
};
TORCH_MODULE(TakesAList);

TEST(TensorTypes, AListIsTakenWhole) {
  TakesAList model;
  const auto module = ulp::capture(model, {torch::randn({2, 1}), torch::randn({2, 3})});
  const Tensors levels{torch::randn({5, 1}), torch::randn({5, 3})};
  EXPECT_TRUE(torch::equal(module->call(levels), model->forward(levels)));
  EXPECT_ERROR(module->call(Tensors{levels[0]}), "expected 2 inputs, got 1");
}

TEST(TensorTypes, OneTensorNeedsNoList) {
  nn::Linear model(4, 2);
  const auto module = ulp::capture(model, torch::randn({2, 4}));
  const at::Tensor x = torch::randn({3, 4});
  EXPECT_EQ(module->graph().inputs()[0]->name, "input");
  EXPECT_TRUE(torch::equal(module->call(x), model(x)));
  EXPECT_TRUE(torch::equal(module->call(std::tuple{x}), model(x)));
}

struct MaybeImpl : nn::Module {
  struct Batch {
    at::Tensor x;
    std::optional<at::Tensor> mask;
    ULP_TENSOR_FIELDS(x, mask)
  };
  nn::Linear fc = register_module("fc", nn::Linear(4, 4));
  std::pair<at::Tensor, std::optional<Detection>> forward(const Batch& batch) {
    const at::Tensor y = batch.mask ? fc(batch.x) * *batch.mask : fc(batch.x);
    if (!is_training()) return {y, std::nullopt};
    return {y, Detection{y * 2, y.relu()}};
  }
};
TORCH_MODULE(Maybe);

TEST(TensorTypes, OptionalsArePartOfTheForm) {
  Maybe model;
  const MaybeImpl::Batch bare{torch::randn({2, 4}), std::nullopt}, masked{bare.x, torch::rand({2, 4})};
  const auto module = ulp::capture(model, bare), with_mask = ulp::capture(model, masked);
  using Result = std::pair<at::Tensor, std::optional<Detection>>;
  for (const bool training : {false, true}) {
    for (const auto& [graph, batch] : {std::pair{module, bare}, std::pair{with_mask, masked}}) {
      model->train(training);
      graph->train(training);
      const Result want = model->forward(batch), got = graph->call<Result>(batch);
      EXPECT_TRUE(torch::equal(want.first, got.first));
      ASSERT_EQ(got.second.has_value(), training);
      if (!training) continue;
      EXPECT_TRUE(torch::equal(want.second->scores, got.second->scores));
    }
  }
  EXPECT_ERROR(module->call<Result>(masked), "expected the inputs 'x', got 'x', 'mask'");
  EXPECT_ERROR(with_mask->call<Result>(bare), "expected the inputs 'x', 'mask', got 'x'");
}

TEST(TensorTypes, NamesOfInputsMayBeGiven) {
  nn::Bilinear model(3, 4, 5);
  const auto module =
      ulp::capture(model, {torch::randn({2, 3}), torch::randn({2, 4})}, {.input_names = {"left", "right"}});
  const at::Tensor left = torch::randn({6, 3}), right = torch::randn({6, 4});
  EXPECT_TRUE(torch::equal(module->call(ByName{{"right", right}, {"left", left}}), model(left, right)));
  EXPECT_ERROR(module->forward({left, torch::randn({6, 5})}), "of 'right'");
  for (const std::vector<std::string>& names :
       std::vector<std::vector<std::string>>{{"a"}, {"a", "a"}, {"a", ""}})
    EXPECT_ERROR(ulp::capture(model, {left, right}, {.input_names = names}), "[graph.capture] expected");
}

TEST(TensorTypes, BadInputsAreNamed) {
  MapInAndOut model;
  const at::Tensor x = torch::randn({2, 4});
  const auto module = ulp::capture(model, ByName{{"x", x}, {"mask", x}});
  EXPECT_ERROR(module->call<ByName>(ByName{{"x", x}, {"musk", x}}),
               "[graph.call] expected the inputs 'mask', 'x', got 'musk', 'x'");
  EXPECT_ERROR(module->call<ByName>(ByName{{"x", x}}), "got 'x'");
  EXPECT_ERROR(module->call<ByName>(ByName{{"x", x}, {"mask", x}, {"more", x}}), "'more'");
  EXPECT_ERROR(module->call<ByName>(ByName{{"x", at::Tensor()}, {"mask", x}}), "a defined tensor as 'x'");
  EXPECT_ERROR(module->call<ByName>(ByName{{"x", x.to(at::kLong)}, {"mask", x}}),
               "expected 'x' of dtype Float or its like, got Long");
  EXPECT_ERROR(module->call<ByName>(ByName{{"x", x}, {"mask", torch::randn({2, 3})}}), "of 'mask'");
  EXPECT_ERROR(ulp::capture(model, ByName{{"x", at::Tensor()}, {"mask", x}}), "a defined tensor as 'x'");
  EXPECT_ERROR(module->call<ByName>(Detection{x, x}), "got 'boxes', 'scores'");
  EXPECT_ERROR(ulp::capture(model, ByName{}), "expected an example of at least one tensor, got none");
}

TEST(TensorTypes, ResultsOfAnotherTypeAreNamed) {
  Detector model;
  const auto module = ulp::capture(model, torch::randn({2, 3, 8, 8}));
  const at::Tensor images = torch::randn({2, 3, 8, 8});
  EXPECT_ERROR(module->call(images), "expected a tensor as the result, got Tuple");
  EXPECT_ERROR(module->call<Pyramid>(images), "expected 'fine' in the result, got 'boxes', 'scores'");
  EXPECT_ERROR((module->call<std::tuple<at::Tensor, at::Tensor>>(images)),
               "expected a tensor as the result[0], got Tuple");
  EXPECT_ERROR((module->call<std::map<std::string, Pyramid>>(images)),
               "expected values with names as the result.boxes, got Tensor");
  struct OneBox {
    at::Tensor boxes;
    ULP_TENSOR_FIELDS(boxes)
  };
  EXPECT_ERROR(module->call<OneBox>(images), "got none for 'scores'");
  nn::Linear plain(4, 2);
  const auto linear = ulp::capture(plain, torch::randn({2, 4}));
  EXPECT_ERROR(linear->call<Detection>(torch::randn({2, 4})), "expected values with names as the result");
  EXPECT_ERROR(linear->call<Tensors>(torch::randn({2, 4})), "expected a list or a tuple as the result");
}

}  // namespace
