// ONNX files as models of the tool.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "ulp/app/model_file.h"
#include "ulp/base/export.h"

namespace ulp::app {

/// What an ONNX file is opened for.
enum class OnnxUse {
  inference,  ///< codes stay codes
  training    ///< codes become fake quantization
};

/// True for a file that begins as ONNX files do, or is named so; false for another and for none.
ULP_API bool is_onnx_file(const std::filesystem::path& path);

/// The description that `ulp export` wrote; nothing in a file of another writer. Throws FileError for a
/// damaged file.
ULP_API std::optional<ModelSpec> onnx_spec(const std::filesystem::path& path);

/// The graph, with a free batch where the nodes can have one; weights of images lie in memory as those of
/// the reference networks. `like` has the size of images and texts where the file leaves them free. Throws
/// FileError.
ULP_API std::shared_ptr<graph::GraphModule> load_onnx_graph(const std::filesystem::path& path,
                                                            const ModelSpec& like, OnnxUse use);

/// The graph in eval mode and a description: the file's own, or one by its inputs and results, with what
/// `like` says of pixels. Throws FileError.
ULP_API LoadedModel load_onnx(const std::filesystem::path& path, const ModelSpec& like);

}  // namespace ulp::app
