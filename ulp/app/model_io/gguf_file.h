// GGUF files of GPT-2-like models as models of the tool. Internal to the room.
#pragma once

#include <filesystem>
#include <memory>

#include "ulp/app/model_io/model_file.h"
#include "ulp/exchange/gguf.h"
#include "ulp/models/text_model.h"

namespace ulp::app {

/// The description of a language model as large as the file's tensors say. Texts are read byte by byte, since
/// the vocabulary of such a file is not read. Throws FileError for another architecture, tensors that are
/// missing, and a number of heads that does not divide the width.
ModelSpec gguf_spec(const exchange::GgufModel& file, const std::filesystem::path& path);

/// The network with the file's values. Throws FileError where gguf_spec() and exchange::gpt2_tensors() do,
/// and for tensors of other shapes.
std::shared_ptr<models::TextModel> gguf_network(const exchange::GgufModel& file,
                                                const std::filesystem::path& path);

}  // namespace ulp::app
