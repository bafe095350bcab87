// Accuracy of a classifier over a whole data set.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "ulp/base/export.h"
#include "ulp/io/dataset.h"
#include "ulp/runtime/engine.h"

namespace ulp::train {

struct Accuracy {
  int64_t correct = 0;
  int64_t total = 0;
  double percent() const {
    return total > 0 ? 100.0 * static_cast<double>(correct) / static_cast<double>(total) : 0.0;
  }
};

/// Normalised float images (N, C, H, W) to logits (N, classes).
using Classifier = std::function<at::Tensor(const at::Tensor& images)>;

/// Called after each batch with the number of images done.
using OnImages = std::function<void(int64_t done)>;

/// Runs the classifier over all images without gradients, in order, normalised by the data set's mean and
/// std. Throws ulp::Error when the logits have another shape or hold NaN (naming the first image), and
/// Interrupted on Ctrl-C.
ULP_API Accuracy evaluate(const Classifier& classifier, const io::ImageDataset& data, int64_t batch = 250,
                          const OnImages& on_images = {});

/// An engine with one image input and one output of logits, as a classifier. The engine must outlive it.
ULP_API Classifier engine_classifier(runtime::Engine& engine);

}  // namespace ulp::train
