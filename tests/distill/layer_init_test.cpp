// Students that start from layers of their teachers.
#include "ulp/distill/layer_init.h"

#include "networks.h"
#include "ulp/io/safetensors.h"
#include "ulp/models/bert.h"

namespace ulp::distill::tests {
namespace {

std::shared_ptr<models::TextModel> bert(int64_t layers, uint64_t seed, int64_t classes = 2) {
  torch::manual_seed(seed);
  return models::make_bert({.vocab_size = 20,
                            .max_length = 6,
                            .width = 8,
                            .layers = layers,
                            .heads = 2,
                            .intermediate = 16,
                            .num_classes = classes});
}

at::Tensor state_of(const torch::nn::Module& model, const std::string& name) {
  for (const auto& [key, tensor] : io::named_state(model)) {
    if (key == name) return tensor;
  }
  ADD_FAILURE() << "no " << name;
  return {};
}

constexpr const char* kLayers = "bert.encoder.layer";
std::string weight(int64_t layer) {
  return std::string(kLayers) + '.' + std::to_string(layer) + ".output.dense.weight";
}

TEST(LayerMap, IsUniformAndTheLastOnesMeet) {
  EXPECT_EQ(layer_map(2, 4), (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(layer_map(6, 12), (std::vector<int64_t>{1, 3, 5, 7, 9, 11}));
  EXPECT_EQ(layer_map(4, 12), (std::vector<int64_t>{2, 5, 8, 11}));
  EXPECT_EQ(layer_map(3, 4), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(layer_map(3, 3), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(layer_map(1, 5), (std::vector<int64_t>{4}));
  EXPECT_ERROR(layer_map(3, 2), "expected 1 to 2 layers of the student, got 3");
  EXPECT_ERROR(layer_map(0, 2), "got 0");
}

TEST(InitFrom, HalfABertTakesEverySecondLayer) {
  const auto teacher = bert(4, 1), student = bert(2, 2);
  const InitReport report = init_from(*student, *teacher, kLayers);
  EXPECT_TRUE(report.left.empty());
  EXPECT_EQ(report.copied.size(), io::named_state(*student).size());
  EXPECT_TRUE(same(state_of(*student, weight(0)), state_of(*teacher, weight(1))));
  EXPECT_TRUE(same(state_of(*student, weight(1)), state_of(*teacher, weight(3))));
  EXPECT_TRUE(same(state_of(*student, "classifier.weight"), state_of(*teacher, "classifier.weight")));
  // A copy: the teacher stays as it is.
  {
    const torch::NoGradGuard no_grad;
    state_of(*student, weight(0)).zero_();
  }
  EXPECT_GT(state_of(*teacher, weight(1)).abs().sum().item<double>(), 0);
  init_from(*student, *teacher, kLayers, 2);
  EXPECT_TRUE(same(state_of(*student, weight(0)), state_of(*teacher, weight(0))));
  EXPECT_TRUE(same(state_of(*student, weight(1)), state_of(*teacher, weight(2))));
}

TEST(InitFrom, CapturedGraphsHaveTheSameNames) {
  const auto teacher = bert(4, 1), student = bert(2, 2);
  const at::Tensor text = torch::randint(0, 20, {2, 6}, torch::kLong);
  const Captured from = capture(teacher, {text}), to = capture(student, {text});
  EXPECT_TRUE(init_from(*to, *from, kLayers).left.empty());
  EXPECT_TRUE(same(state_of(*student, weight(1)), state_of(*teacher, weight(3))));
}

TEST(InitFrom, OtherShapesAndNamesAreLeft) {
  const auto teacher = bert(2, 1, 2), student = bert(2, 2, 3);
  const at::Tensor before = state_of(*student, "classifier.weight").clone();
  const InitReport report = init_from(*student, *teacher);
  EXPECT_EQ(report.left, (std::vector<std::string>{"classifier.weight", "classifier.bias"}));
  EXPECT_TRUE(same(state_of(*student, "classifier.weight"), before));
  EXPECT_TRUE(same(state_of(*student, weight(1)), state_of(*teacher, weight(1))));
}

TEST(InitFrom, LayersOfASequentialAreItsNumbers) {
  torch::manual_seed(3);
  const auto net = [](int count) {
    auto made = std::make_shared<torch::nn::Module>();
    torch::nn::Sequential layers;
    for (int i = 0; i < count; ++i) layers->push_back(torch::nn::Linear(3, 3));
    made->register_module("layers", layers);
    return made;
  };
  const auto teacher = net(12), student = net(6);
  init_from(*student, *teacher, "layers");
  for (int i = 0; i < 6; ++i)
    EXPECT_TRUE(same(state_of(*student, "layers." + std::to_string(i) + ".weight"),
                     state_of(*teacher, "layers." + std::to_string(2 * i + 1) + ".weight")))
        << i;
}

TEST(InitFrom, LayersThatAreNotThereAreRefused) {
  const auto four = bert(4, 1), two = bert(2, 2);
  EXPECT_ERROR(init_from(*two, *four, "encoder"),
               "expected a student with layers 'encoder.0' and on, got none");
  EXPECT_ERROR(init_from(*four, *two, kLayers), "expected 1 to 2 layers of the student, got 4");
  EXPECT_ERROR(init_from(*two, *four, kLayers, 4), "expected every >= 0 with 2 of 4 layers, got 4");
  EXPECT_ERROR(init_from(*two, *four, kLayers, -1), "got -1");
  const Captured images = conv_net(4, 1);
  EXPECT_ERROR(init_from(*images, *four),
               "expected a teacher with tensors of the student's names, got none of");
  EXPECT_ERROR(init_from(*two, *images, kLayers), "expected a teacher with layers 'bert.encoder.layer.0'");
}

}  // namespace
}  // namespace ulp::distill::tests
