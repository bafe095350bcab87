#include "ulp/app/model_file.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "error_of.h"
#include "temporary_folder.h"
#include "ulp/graph/graph_module.h"
#include "ulp/io/safetensors.h"

namespace ulp::app {
namespace {

/// What loading says of a file with one tensor and this description.
std::string said_of(const ModelSpec& spec, std::vector<int64_t> stored) {
  const ulp::test::TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "model.safetensors";
  io::save_tensors(path, {{"weight", torch::zeros(stored)}}, {{kModelSpecKey, spec.to_json()}});
  return ulp::test::error_of([&] { load_model_file(path); });
}

TEST(ModelFile, SizesThatNoStoredTensorHasAreRefusedBeforeTheNetworkIsMade) {
  const ModelSpec mlp{.name = "mlp", .image_size = 2048};  // would take 2 GB
  EXPECT_SAYS(said_of(mlp, {10}), "2048 x 2048 pixels");
  EXPECT_SAYS(said_of(mlp, {65536}), "2048 x 2048 pixels");
  EXPECT_SAYS(said_of(mlp, {int64_t{1} << 22, 0}), "num_classes");  // an empty tensor says nothing
  EXPECT_SAYS(said_of({.name = "lenet5", .image_size = 2000}, {10}), "2000 x 2000 pixels");
  EXPECT_SAYS(said_of({.name = "resnet20", .num_classes = 65536}, {10}), "num_classes of at most 10");
  EXPECT_SAYS(said_of({.name = "resnet20", .in_channels = 4096}, {10}), "in_channels of at most 10");
  EXPECT_SAYS(said_of({.name = "resnet20", .image_size = 65536}, {10}), "in_channels * image_size^2");
  // What fits is refused for the missing tensors.
  EXPECT_SAYS(said_of({.name = "resnet20", .image_size = 512}, {10}), "conv1");
  EXPECT_SAYS(said_of({.name = "resnet20", .in_channels = 3, .image_size = 1200}, {10}), "conv1");
}

TEST(ModelFile, NetworksOfEverySizeComeBack) {
  const ulp::test::TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "model.safetensors";
  for (const char* name : {"lenet5", "mlp"}) {
    for (const int64_t image_size :
         {12, 20, 28, 31, 32, 33, 64, 400}) {  // the growth is looked at from 362 on
      const ModelSpec spec{.name = name, .num_classes = 3, .image_size = image_size};
      save_model_file(path, *make_network(spec).module, spec);
      EXPECT_EQ(load_model_file(path).spec.image_size, image_size);
    }
  }
}

TEST(ModelFile, CapturedModelsComeBackAsTheyWere) {
  const ulp::test::TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "model.safetensors";
  const ModelSpec spec{.name = "lenet5", .num_classes = 3, .image_size = 28};
  save_model_file(path, *make_network(spec).module, spec);
  const LoadedModel model = load_model_file(path);
  const at::Tensor images = torch::randn({3, 1, 28, 28}), expected = model.forward(images);
  const std::filesystem::path stored = folder.path() / "graph.safetensors";
  save_model_file(stored, *model.graph, spec);
  const LoadedModel again = load_model_file(stored);
  EXPECT_EQ(again.spec.name, "lenet5");
  EXPECT_TRUE(again.forward(images).equal(model.graph->forward(images)));
  EXPECT_TRUE(again.forward(images).allclose(expected));
  const Network network = load_network(stored);
  EXPECT_EQ(network.module->parameters().size(), make_network(spec).module->parameters().size());
  EXPECT_TRUE(network.forward({images, {}}).equal(again.forward(images)));
  // A description of other images.
  io::TensorFile file = io::load_tensors(stored);
  ModelSpec other = spec;
  other.image_size = 65536;
  file.metadata[kModelSpecKey] = other.to_json();
  io::save_tensors(stored, file.tensors, file.metadata);
  EXPECT_SAYS(ulp::test::error_of([&] { load_model_file(stored); }), "what its description says");
}

TEST(ModelFile, CapturedTextsComeBackAtAnyLength) {
  const ulp::test::TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "model.safetensors";
  const ModelSpec spec{.name = "lstm", .kind = NetworkKind::language, .num_classes = 256, .max_length = 12};
  save_model_file(path, *make_network(spec).module, spec);
  const LoadedModel model = load_text_model_file(path);
  save_model_file(folder.path() / "graph", *model.graph, spec);
  const LoadedModel again = load_text_model_file(folder.path() / "graph");
  const at::Tensor tokens = torch::randint(1, 200, {2, 7}, torch::kLong);
  EXPECT_TRUE(again.forward(tokens).equal(model.graph->forward(tokens)));
}

}  // namespace
}  // namespace ulp::app
