// Networks of other writers that commands of the tool cannot use: each is refused in words that name the file.
#include <gtest/gtest.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <fstream>
#include <functional>

#include "error_of.h"
#include "exchange/onnx_message.h"
#include "npy_file.h"
#include "temporary_folder.h"
#include "ulp/app/data/data.h"
#include "ulp/app/memory/memory.h"
#include "ulp/app/model_io/inference_model.h"
#include "ulp/app/model_io/model_file.h"
#include "ulp/app/model_io/model_signature.h"
#include "ulp/app/quantize/quantize.h"
#include "ulp/app/run/eval.h"
#include "ulp/app/run/run.h"
#include "ulp/app/train/workload.h"
#include "ulp/graph/graph_module.h"

namespace ulp::app {
namespace {

using test::error_of;
using test::OnnxText;

class NetworkForm : public ::testing::Test {
 protected:
  /// Weights of ones, [5, columns].
  static OnnxText rows(int64_t columns, const std::vector<int64_t>& sizes = {-1, 5}) {
    OnnxText text;
    text.input("x", sizes).floats("w", {5, columns}, std::vector<float>(static_cast<size_t>(5 * columns), 1));
    return text.node("MatMul", {"x", "w"}, {"y"});
  }
  LoadedModel load(const OnnxText& text) {
    std::ofstream(path_, std::ios::binary) << text.bytes();
    return load_any_model_file(path_);
  }
  LoadedModel script(const std::string& forward, const ModelSpec& like, at::ScalarType type = at::kFloat) {
    torch::jit::Module module("Scripted");
    module.register_parameter("w", torch::ones({5, 7}, type), /*is_buffer=*/false);
    module.define(forward);
    module.save(script_.string());
    return load_any_model_file(script_, like);
  }
  static ModelSpec five_values() {
    ModelSpec like;
    like.in_channels = 5;
    like.image_size = 1;
    return like;
  }
  /// 40 rows of this shape and a type; classes 0 and 1.
  std::string data(const std::string& type, const std::string& shape, size_t bytes) const {
    std::ofstream(folder_ / "x.npy", std::ios::binary)
        << test::npy(type, "40, " + shape, std::string(bytes, 1));
    std::vector<int64_t> y(40);
    for (size_t i = 0; i < y.size(); ++i) y[i] = static_cast<int64_t>(i % 2);
    std::ofstream(folder_ / "y.npy", std::ios::binary) << test::npy("<i8", "40,", test::bytes_of(y));
    return (folder_ / "x.npy").string() + "," + (folder_ / "y.npy").string();
  }

  test::TemporaryFolder folder_;
  std::filesystem::path path_ = folder_ / "network.onnx", script_ = folder_ / "network.pt";
};

TEST_F(NetworkForm, ABatchThatIsOneNumberHasNoEngine) {
  OnnxText text = rows(4, {1, 5});
  const LoadedModel fixed = load(text.ints("to", {1, 4}).node("Reshape", {"y", "to"}, {"z"}).output("z"));
  const std::string said = error_of([&] { expect_engine_inputs(*fixed.graph, path_); });
  EXPECT_SAYS(said, "network.onnx', whose input 'x' is always [1, 5]");
  EXPECT_SAYS(said, "dynamic_shapes of torch.export.export()");
  EXPECT_SAYS(error_of([&] { run_file({.model = path_}); }), "is always [1, 5]");
  EXPECT_NO_THROW(expect_engine_inputs(*load(rows(4, {1, 5}).output("y")).graph, path_))
      << "where the nodes compute at any batch, it is made free";
}

TEST_F(NetworkForm, SeveralInputsAndOtherRanksAreNoSamples) {
  OnnxText two = rows(4);
  const LoadedModel sum = load(two.input("b", {-1, 4}).node("Add", {"y", "b"}, {"z"}).output("z"));
  EXPECT_SAYS(error_of([&] { expect_sample_input(*sum.graph, path_); }),
              "network.onnx', which has 2: 'x' [N, 5], 'b' [N, 4]");
  EXPECT_NO_THROW(expect_engine_inputs(*sum.graph, path_));
  const LoadedModel series = load(rows(4, {-1, 7, 5}).output("y"));
  EXPECT_SAYS(error_of([&] { expect_sample_input(*series.graph, path_); }), "whose input 'x' is [N, 7, 5]");
  EXPECT_SAYS(error_of([&] { make_trial({.model = path_}); }), "whose input 'x' is [N, 7, 5]");
}

TEST_F(NetworkForm, Float64IsRefusedWithTheWayToFloat32) {
  OnnxText text;
  text.input("x", {-1, 5}, /*type=*/11).tensor<double>("w", 11, {5, 4}, std::vector<double>(20, 1));
  const LoadedModel model = load(text.node("MatMul", {"x", "w"}, {"y"}).output("y"));
  for (const auto& expect : {expect_engine_inputs, expect_sample_input})
    EXPECT_SAYS(error_of([&] { expect(*model.graph, path_); }), "network.onnx', whose input 'x' is Double");
  EXPECT_SAYS(
      error_of([&] { script("def forward(self, x):\n  return x @ self.w\n", five_values(), at::kDouble); }),
      "its weights are float64: model.float()");
}

TEST_F(NetworkForm, ResultsThatAreNoLogitsAreRefused) {
  const auto said = [&](const LoadedModel& model) {
    return error_of([&] { expect_logits(*model.graph, path_); });
  };
  EXPECT_SAYS(said(load(rows(4).node("Relu", {"y"}, {"z"}).output("y").output("z"))),
              "got 2 results, 'y' [N, 4], 'z' [N, 4], from '");
  EXPECT_SAYS(said(load(rows(1).output("y"))), "got one number for each sample, [N, 1], from '");
  OnnxText flat = rows(1);
  EXPECT_SAYS(said(load(flat.ints("to", {-1}).node("Reshape", {"y", "to"}, {"z"}).output("z"))),
              "got a result of [N] from '");
  EXPECT_NO_THROW(expect_logits(*load(rows(2).output("y")).graph, path_));
}

TEST_F(NetworkForm, TwoResultsAndOneOutputAreCalibrated) {
  const LoadedModel model = load(rows(1).node("Relu", {"y"}, {"z"}).output("y").output("z"));
  const SplitData samples = load_samples(data("<f4", "5", 40 * 5 * 4), model.spec);
  const QuantizedModel quantized = quantize(model.graph, quant::Recipe::x86_int8(), samples, 8);
  EXPECT_EQ(quantized.graph->forward_all({torch::ones({3, 5})}).size(), 2U);
}

TEST_F(NetworkForm, TorchScriptTakesOneInputAndSaysItsClasses) {
  const LoadedModel model = script("def forward(self, x):\n  return x @ self.w\n", five_values());
  EXPECT_EQ(model.spec.num_classes, 7);
  EXPECT_SAYS(error_of([&] { script("def forward(self, x, z):\n  return x @ self.w + z\n", five_values()); }),
              "network.pt', whose forward takes x, z");
  const std::string said = error_of(
      [&] { script("def forward(self, x):\n  return (x @ self.w).reshape(1, 7)\n", five_values()); });
  EXPECT_SAYS(said, "network.pt' did not run on two rows of 5 values, which --shape changes: ");
  EXPECT_FALSE(test::contains(said, "Traceback")) << said;
}

TEST_F(NetworkForm, MemoryDrawsTheClassesThatATorchScriptFileHas) {
  script("def forward(self, x):\n  return x @ self.w\n", five_values());
  const Workload model = find_workload(script_.string(), {.image = {5, 1, 1}});
  EXPECT_LT(model.draw({.batch = 200}).targets.max().item<int64_t>(), 7);
  load(rows(1).output("y"));
  EXPECT_ERROR(ask_memory(find_workload(path_.string(), {}), {}),
               "got one number for each sample, [N, 1], from '");
}

/// The mean over the pixels of 3 channels.
OnnxText means(const std::vector<int64_t>& sizes) {
  OnnxText text;
  return text.input("x", sizes)
      .node("GlobalAveragePool", {"x"}, {"m"})
      .node("Flatten", {"m"}, {"y"})
      .output("y");
}

TEST_F(NetworkForm, ImagesNeedNotBeSquare) {
  const LoadedModel fixed = load(means({-1, 3, 4, 6}));
  EXPECT_EQ(fixed.spec.batch_sizes(2), (std::vector<int64_t>{2, 3, 4, 6}));
  EXPECT_EQ(ModelSpec::from_json(fixed.spec.to_json()).width(), 6);
  std::ofstream(path_, std::ios::binary) << means({-1, 3, -2, -2}).bytes();
  ModelSpec like;
  like.in_channels = 3;
  like.image_size = 4;
  like.image_width = 6;
  const LoadedModel free = load_any_model_file(path_, like);
  EXPECT_EQ(free.spec.batch_sizes(2), (std::vector<int64_t>{2, 3, 4, 6}));
  for (const char* type : {"|u1", "<f4"}) {
    const std::string samples = data(type, "3, 4, 6", 40 * 72 * (type[1] == 'u' ? 1 : 4));
    EXPECT_EQ(load_split(samples, io::Split::test, free.spec).first_inputs(2).sizes(),
              (std::vector<int64_t>{2, 3, 4, 6}));
    EXPECT_ERROR(load_data(samples, 0), "expected square images");
    ModelSpec higher = free.spec;
    higher.image_size = 6;
    EXPECT_ERROR(load_split(samples, io::Split::test, higher), "expected samples of 3x6x6");
  }
}

TEST_F(NetworkForm, SizesThatAFileSaysItselfCannotBeAskedFor) {
  std::ofstream(path_, std::ios::binary) << means({-1, 3, 4, 6}).bytes();
  ModelSpec asked;
  asked.asked = true;
  EXPECT_ERROR(load_any_model_file(path_, asked),
               "network.onnx', which says itself that it takes images of 3x4x6, got --shape 1,28,28");
  asked.in_channels = 3;
  asked.image_size = 4;
  asked.image_width = 6;
  EXPECT_NO_THROW(load_any_model_file(path_, asked));
  save_model_file(folder_ / "own", *make_network({.name = "mlp", .image_size = 4}).module,
                  {.name = "mlp", .image_size = 4});
  EXPECT_ERROR(load_any_model_file(folder_ / "own", asked), "images of 1x4x4");
}

TEST_F(NetworkForm, AFileOfAnotherKindSaysWhatIsRead) {
  std::ofstream(folder_ / "notes.txt") << "this is a text and no model\n";
  for (const auto& read : {std::function<void()>([&] { load_any_model_file(folder_ / "notes.txt"); }),
                           std::function<void()>([&] { is_engine_file(folder_ / "notes.txt"); })})
    EXPECT_SAYS(error_of(read), "notes.txt', which begins as none of them");
}

TEST_F(NetworkForm, ADamagedFileIsNamedByWhatItIs) {
  const auto says = [&](const char* name, const std::string& bytes) {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    const std::string text = error_of([&] { load_any_model_file(folder_ / name); });
    EXPECT_EQ(text.find("safetensors file"), std::string::npos) << text;
    EXPECT_SAYS(text, name);
    return text;
  };
  const std::string zip("PK\x03\x04", 4);
  EXPECT_SAYS(says("empty.gguf", ""), "which is empty, though its name says a GGUF file");
  EXPECT_SAYS(says("short.ulp", "abc"), "begins as none of them, though its name says an engine");
  EXPECT_SAYS(says("page.pt", "<html>no such file</html>"), "its name says a TorchScript archive");
  EXPECT_SAYS(says("model.tflite", std::string("\x1c\0\0\0TFL3", 8) + std::string(40, '\1')),
              "which is a TensorFlow Lite file");
  EXPECT_SAYS(says("empty.pt2", ""), "expected a .pt2 archive, got");
  EXPECT_SAYS(says("cut.pt2", zip + std::string(60, 'x')), "it is cut short (64 bytes)");
  EXPECT_SAYS(says("page.pt2", "<html></html>"), "does not begin as a zip archive");
  EXPECT_SAYS(says("cut.onnx", std::string("\x08\x09\x3a\x50", 4) + "abc"), "of the ONNX file");
  EXPECT_SAYS(says("cut.onnx", std::string("\x08\x09\x3a\x50", 4) + "abc"), "field 7");
}

}  // namespace
}  // namespace ulp::app
