// Arrays named by inputs, and archives that have labels instead.
#include "ulp/app/data/named_data.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <fstream>

#include "error_of.h"
#include "npy_file.h"
#include "temporary_folder.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/graph/graph_module.h"

namespace ulp::app {
namespace {

using test::bytes_of;
using test::npy;
using test::npz;

std::shared_ptr<graph::GraphModule> network(at::ScalarType type) {
  torch::nn::Linear layer(4, 3);
  const auto body = [&](const std::vector<at::Tensor>& x) { return c10::IValue(layer(x[0].to(at::kFloat))); };
  graph::CaptureOptions options;
  options.input_names = {"x"};
  return graph::capture(*layer, body, {torch::zeros({2, 4}).to(type)}, options);
}

void write(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string numbers(double first) {
  return npy("<f8", "1, 4", bytes_of(std::vector<double>{first, 0, 1, 2}));
}

TEST(NamedData, LabelsMakeAnArchiveOfSamplesThatAreNotNamed) {
  const test::TemporaryFolder folder;
  const auto model = network(at::kFloat);
  const std::string labels = npy("<i8", "1", bytes_of(std::vector<int64_t>{2}));
  write(folder / "named.npz", npz({{"x", numbers(1)}}));
  write(folder / "labelled.npz", npz({{"x", numbers(1)}, {"y", labels}}));
  EXPECT_TRUE(load_named_inputs(folder / "named.npz", *model).has_value());
  EXPECT_FALSE(load_named_inputs(folder / "labelled.npz", *model).has_value());
}

TEST(NamedData, NumbersThatTheInputCannotHoldAreRefused) {
  const test::TemporaryFolder folder;
  write(folder / "large.npz", npz({{"x", numbers(1e40)}}));
  EXPECT_ERROR(load_named_inputs(folder / "large.npz", *network(at::kFloat)),
               "expected finite numbers of Float");
  const std::string wide = npy("<i8", "1, 4", bytes_of(std::vector<int64_t>{int64_t{1} << 40, 0, 1, 2}));
  write(folder / "wide.npz", npz({{"x", wide}}));
  EXPECT_ERROR(load_named_inputs(folder / "wide.npz", *network(at::kInt)), "expected numbers that Int holds");
}

}  // namespace
}  // namespace ulp::app
