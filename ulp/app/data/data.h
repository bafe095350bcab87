// The tool's data sets by name, folder or file, prepared for a network.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "ulp/app/model_io/model_file.h"
#include "ulp/base/export.h"
#include "ulp/io/dataset.h"
#include "ulp/train/task.h"

namespace ulp::app {

/// A data set of any kind.
struct TaskData {
  ModelSpec spec;         ///< what a network for it must be like; its name is left to the caller
  const char* unit = "";  ///< what a sample is: "image", "row", "window", "line"
  std::function<std::unique_ptr<train::BatchStream>(io::Split split, const train::StreamOptions& options)>
      stream;
  std::function<io::ImageDataset(io::Split split)> images =
      {};  ///< empty unless the samples are images of bytes
};

/// One split of a data set.
struct ULP_API SplitData {
  /// Streams of it, each from the start.
  std::function<std::unique_ptr<train::BatchStream>(const train::StreamOptions& options)> stream;
  const char* unit = "";  ///< what a sample is

  SplitData(std::function<std::unique_ptr<train::BatchStream>(const train::StreamOptions& options)> stream,
            const char* unit)
      : stream(std::move(stream)), unit(unit) {}
  /// Makes splits of images in memory.
  SplitData(io::ImageDataset images);  // NOLINT(google-explicit-constructor)

  int64_t samples() const;
  /// So many samples go through a network at once: `most` images or rows, or the texts of about 4,096 tokens.
  int64_t batch(int64_t most) const;
  /// The first samples alone, at least one.
  SplitData first(int64_t most) const;
  /// Inputs of the first samples as one batch.
  at::Tensor first_inputs(int64_t most) const;
};

/// Reads a data set, told apart by content and name:
///
///   fashion-mnist          io::load_fashion_mnist()
///   a folder               with IDX files named as MNIST's, or with CIFAR-10's binary files
///   FILE.npz, X.npy,Y.npy  arrays x (rows of values, or images) and y (classes from 0); an archive may have
///                          x_train, y_train, x_test and y_test instead, otherwise every tenth row is for
///                          testing
///   FILE.tsv               a text in each line, behind its label and a tab; every tenth line is for testing
///   any other text file    bytes or tokens to predict, in windows of `length`; the last tenth is for testing
///
/// Images and rows are normalised per channel; arrays of bytes of shape (N, H, W), (N, C, H, W) or (N, H, W,
/// C) are images. `length`: bytes of a text that a network reads at once, or tokens of the `tokenizer` where there is one. With `model`
/// the data is prepared for that network instead: its normalisation, classes, length and tokenizer. Throws FileError for a file that is
/// missing, damaged, of another form or too short, and ulp::Error for data that does not fit the model.
ULP_API TaskData load_data(const std::string& name, int64_t length, const ModelSpec* model = nullptr,
                           std::shared_ptr<const io::Tokenizer> tokenizer = nullptr);

/// One split of what load_data() reads for the model; of images in folders the other one is not read. Throws
/// as load_data().
ULP_API SplitData load_split(const std::string& name, io::Split split, const ModelSpec& model);

/// The training part of data of which the labels count for nothing, as load_unlabelled() reads it; of images
/// in folders the other part is not read. Throws as load_data().
ULP_API SplitData load_samples(const std::string& name, const ModelSpec& model);

/// Data of which the labels count for nothing: what load_data() takes, and X.npy or FILE.npz without labels.
/// Throws as load_data().
ULP_API TaskData load_unlabelled(const std::string& name, const ModelSpec& model);

/// The images of a data set of images, normalised as the model's; of a folder only the split is read. Throws
/// FileError for missing or damaged files and for other samples than images of bytes, and ulp::Error when
/// images or classes do not fit the model.
ULP_API io::ImageDataset load_images(const std::string& name, io::Split split, const ModelSpec& spec);

/// An epoch that ends after at most so many samples, >= 1.
ULP_API std::unique_ptr<train::BatchStream> first_samples(std::unique_ptr<train::BatchStream> stream,
                                                          int64_t most);

/// The first `count` images, normalised, float (count, C, H, W), dense in that order.
ULP_API at::Tensor first_images(const io::ImageDataset& data, int64_t count);

}  // namespace ulp::app
