// Files that describe their network themselves as models of the tool: ONNX files, .pt2 archives of
// torch.export, and graphs that io::save_graph() wrote without the tool's description.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "ulp/app/model_io/model_file.h"
#include "ulp/base/export.h"

namespace ulp::app {

/// The purpose that such a file is opened for.
enum class ExchangeUse {
  inference,  ///< codes stay codes
  training    ///< codes become fake quantization
};

/// Throws FileError, which says what the tool reads and what the file is by its name, for one that does not
/// begin as safetensors files do: models of `ulp train`, engines. Whoever reads the file says what is wrong
/// with one that is missing or ends after its ninth byte.
ULP_API void expect_safetensors(const std::filesystem::path& path);

/// True for a file that begins as zip archives do: a .pt2 archive, TorchScript.
ULP_API bool is_zip_file(const std::filesystem::path& path);

/// True for a .pt2 archive, by its name or by what is in it.
ULP_API bool is_pt2_file(const std::filesystem::path& path);

/// True for a file that io::save_graph() wrote and that has no description of save_model_file(): its graph
/// says what it takes. False for another, a damaged one and none.
ULP_API bool is_graph_file(const std::filesystem::path& path);

/// True for a .pt2 archive, a graph file, and a file that begins as ONNX files do, or is named so; false for
/// another and for none.
ULP_API bool is_exchange_file(const std::filesystem::path& path);

/// `stored`, or `like` where there is none, with the sizes of free dimensions that `like` asks for.
ULP_API ModelSpec with_sizes_of(const std::optional<ModelSpec>& stored, const ModelSpec& like);

/// The description that `ulp export` wrote into an ONNX file or a .pt2 archive; nothing in a file of another
/// writer. Throws FileError for a damaged file.
ULP_API std::optional<ModelSpec> exchange_spec(const std::filesystem::path& path);

/// The graph, of ONNX with a free batch where the nodes can have one, of an archive as it was exported; their
/// weights of images lie in memory as those of the reference networks. Of a graph file as it was saved.
/// `like` has the size of images and texts where the file leaves them free. Throws FileError.
ULP_API std::shared_ptr<graph::GraphModule> load_exchange_graph(const std::filesystem::path& path,
                                                                const ModelSpec& like, ExchangeUse use);

/// The graph in eval mode and a description: the file's own, or one by its inputs and results, with what
/// `like` says of pixels. Throws FileError.
ULP_API LoadedModel load_exchange(const std::filesystem::path& path, const ModelSpec& like);

}  // namespace ulp::app
