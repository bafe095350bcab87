// The tool's data sets by name or folder, prepared for a model.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "ulp/base/export.h"
#include "ulp/io/dataset.h"
#include "ulp/train/model_file.h"

namespace ulp::train {

/// "fashion-mnist", or a folder with IDX files named as MNIST's (train-images-idx3-ubyte[.gz] ...). The
/// normalisation is the model's. Throws FileError for missing or damaged files, and ulp::Error when images or
/// classes do not fit the model.
ULP_API io::ImageDataset load_images(const std::string& name, io::Split split, const ModelSpec& spec);

/// The first `count` images, normalised, float (count, C, H, W), dense in that order.
ULP_API at::Tensor first_images(const io::ImageDataset& data, int64_t count);

}  // namespace ulp::train
