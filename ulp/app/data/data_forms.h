// The forms of data that load_data() knows, one file each. Internal to the room.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "ulp/app/data/data.h"
#include "ulp/base/component.h"

namespace ulp::app {

/// The function or class that errors name.
inline constexpr const char* kLoadDataWhere = "app.load_data";

/// One sample in so many is for testing where a data set does not say itself.
inline constexpr int64_t kHoldout = 10;

/// Whether that is a folder, or names one.
bool is_folder(const std::string& name);
/// Whether the folder has CIFAR-10's files rather than MNIST's.
bool is_cifar_folder(const std::filesystem::path& folder);
/// The images of a folder, normalised as the data set is.
io::ImageDataset read_images(const std::string& name, io::Split split);

/// Data sets in files: of load_data(), for code that is also linked without it.
struct DataFiles {
  TaskData (*load)(const std::string& name, int64_t length, const ModelSpec* model,
                   std::shared_ptr<const io::Tokenizer> tokenizer);
};
extern Component<DataFiles> data_files;

/// Training and test images, of one shape. `source` words errors.
TaskData image_data(io::ImageDataset train, io::ImageDataset test, const ModelSpec* model,
                    const std::string& source);

/// Throws ulp::Error unless the network can take the data of this description.
void expect_fit(const ModelSpec& data, const ModelSpec& model, const std::string& name);

/// Throws FileError for images [N, C, H, W] that are not square: the reference networks that are made for
/// data take such.
void expect_square(at::IntArrayRef sizes, const std::string& source);

/// FILE.npz.
TaskData archive_data(const std::filesystem::path& path, const ModelSpec* model);
/// X.npy and Y.npy.
TaskData array_data(const std::filesystem::path& x, const std::filesystem::path& y, const ModelSpec* model);

/// X.npy alone, or an archive with x and without y: every row is for training, of class 0. Nothing for other
/// files.
std::optional<TaskData> values_alone(const std::filesystem::path& path, const ModelSpec& model);

using TokenizerPointer = std::shared_ptr<const io::Tokenizer>;  ///< null: texts are read byte by byte

/// Bytes or tokens to predict.
TaskData language_data(const std::filesystem::path& path, int64_t length, const TokenizerPointer& tokenizer);
/// Lines of label, tab, text. The classes are the model's where there is one.
TaskData labelled_text_data(const std::filesystem::path& path, int64_t length, const ModelSpec* model,
                            const TokenizerPointer& tokenizer);

/// The numbers of the samples for training or testing where a data set does not say itself: every tenth is
/// for testing.
at::Tensor holdout(int64_t samples, io::Split split);

}  // namespace ulp::app
