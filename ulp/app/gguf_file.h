// GGUF files of GPT-2-like models as models of the tool. Internal to the room.
#pragma once

#include <filesystem>
#include <memory>

#include "ulp/app/model_file.h"
#include "ulp/exchange/gguf.h"
#include "ulp/models/text_model.h"

namespace ulp::app {

/// True for a file that begins as GGUF files do.
bool is_gguf_file(const std::filesystem::path& path);

/// A language model as large as the file's tensors say, with their values, and its description: texts are read byte by byte, since the
/// vocabulary of such a file is not read. Throws FileError where exchange::import_gguf() and exchange::gpt2_tensors() do, for tensors that
/// are missing or of other shapes, and for a number of heads that does not divide the width.
struct GgufNetwork {
  ModelSpec spec;
  std::shared_ptr<models::TextModel> model;
};
GgufNetwork gguf_network(const exchange::GgufModel& file, const std::filesystem::path& path);

}  // namespace ulp::app
