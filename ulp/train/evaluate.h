// How well a network does over a whole data set.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "ulp/base/export.h"
#include "ulp/io/dataset.h"
#include "ulp/runtime/engine/engine.h"
#include "ulp/train/task.h"

namespace ulp::train {

/// How often a network was right.
struct ULP_API Accuracy {
  int64_t correct = 0;
  int64_t total = 0;  ///< predictions: samples, or the bytes of a text
  double loss = 0;    ///< mean cross-entropy in nats
  double percent() const {
    return total > 0 ? 100.0 * static_cast<double>(correct) / static_cast<double>(total) : 0.0;
  }
  /// exp(loss): among how many equally likely classes the network hesitates.
  double perplexity() const;
};

/// Normalised float images (N, C, H, W) to logits (N, classes).
using Classifier = std::function<at::Tensor(const at::Tensor& images)>;

/// Called after each batch with the number of samples done.
using OnSamples = std::function<void(int64_t done)>;

/// Runs the network over one epoch of the stream without gradients. Throws ulp::Error when the logits do not
/// fit the targets or hold NaN (naming the first sample), and Interrupted on Ctrl-C.
ULP_API Accuracy evaluate(const Forward& forward, BatchStream& batches, const OnSamples& on_samples = {});

/// Evaluates on all images, in order, normalised by the data set's mean and std.
ULP_API Accuracy evaluate(const Classifier& classifier, const io::ImageDataset& data, int64_t batch = 250,
                          const OnSamples& on_images = {});

/// An engine with one image input and one output of logits, as a classifier. The engine must outlive it.
ULP_API Classifier engine_classifier(runtime::Engine& engine);

}  // namespace ulp::train
