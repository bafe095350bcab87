#include "ulp/app/model_io/model_sizes.h"

#include <torch/nn/module.h>

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/base/safetensors.h"
#include "ulp/models/registry.h"

namespace ulp::app {

namespace {

/// Elements of an image that capture runs the network on: 4096 x 4096 in one channel.
constexpr int64_t kMostElements = int64_t{1} << 24;

/// Outputs of the widest layer of a reference network that reads all pixels at once: mlp has 256, lenet5 120.
/// A wider one raises it.
constexpr int64_t kWidest = 512;
/// How much smaller than kWidest says a right file may be: narrower layers, and pooling before them.
constexpr int64_t kSlack = 64;
/// Bytes of weights that are made without a question.
constexpr int64_t kSmall = int64_t{256} << 20;

int64_t parameters_of(const std::string& name, int64_t image_size) {
  int64_t count = 0;
  const auto model = models::make_model(name, {.in_channels = 1, .num_classes = 2, .image_size = image_size});
  for (const at::Tensor& parameter : model->parameters()) count += parameter.numel();
  return count;
}

/// Whether a layer reads all pixels at once, so that a larger image needs larger weights.
bool grows_with_the_image(const std::string& name) {
  return parameters_of(name, 96) != parameters_of(name, 128);
}

}  // namespace

void check_sizes(const std::filesystem::path& path, const ModelSpec& spec) {
  int64_t largest = 0, stored = 0;  // dimension of any tensor that has elements; bytes of all
  const SafetensorsFile file(path);
  for (const TensorEntry& tensor : file.tensors()) {
    if (tensor.bytes.empty()) continue;
    for (const int64_t size : tensor.shape) largest = std::max(largest, size);
    stored += static_cast<int64_t>(tensor.bytes.size());
  }
  const auto check = [&](const char* what, int64_t size, int64_t limit) {
    if (size <= limit) return;
    fail_file("app.load_model_file", "expected ", what, " of at most ", limit, " beside the tensors in '",
              path.string(), "', got ", size);
  };
  if (spec.kind != NetworkKind::language) check("num_classes", spec.num_classes, largest);
  if (spec.tokenizer) check("a vocabulary", spec.vocab_size(), largest);
  if (spec.kind != NetworkKind::image) return;
  check("in_channels", spec.in_channels, largest);
  const int64_t pixels = spec.image_size * spec.width();
  check("in_channels * image_size^2", spec.in_channels * pixels, kMostElements);
  // A layer that reads all pixels has at most kWidest outputs; with fewer channels or outputs the file is
  // smaller than this says, by less than kSlack.
  const int64_t cost = spec.in_channels * pixels * kWidest * static_cast<int64_t>(sizeof(float));
  if (cost <= kSmall + kSlack * stored || !grows_with_the_image(spec.name)) return;
  fail_file("app.load_model_file", "expected weights for images of ", spec.image_size, " x ", spec.image_size,
            " pixels in '", path.string(), "', got ", stored, " bytes of tensors");
}

}  // namespace ulp::app
