// TensorProto: a tensor in the file or in another one beside it.
#pragma once

#include "ulp/exchange/onnx_import/file_model.h"
#include "ulp/exchange/proto/wire_reader.h"

namespace ulp::exchange::onnx_import {

/// Reads a tensor. Its sizes have to belong to the bytes that are there before memory is taken. `folder`:
/// where other files may lie. Throws FileError.
FileTensor read_tensor(WireReader reader, const std::filesystem::path& folder);

/// Bytes of a tensor in another file.
struct ExternalData {
  std::string location;  ///< a path inside the model's folder
  int64_t offset = 0;
  int64_t length = -1;  ///< -1: as many as the tensor has
};
/// A tensor from a file inside `folder`. Throws FileError for a path that leads out of it, also by a link,
/// for what is no regular file, and for one that is too short, before memory is taken.
at::Tensor read_external(const ExternalData& from, const std::filesystem::path& folder,
                         const std::vector<int64_t>& sizes, at::ScalarType type, const std::string& where);

}  // namespace ulp::exchange::onnx_import
