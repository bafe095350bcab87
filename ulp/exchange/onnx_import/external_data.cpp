// Tensors that lie in a file beside the model.
#include <torch/types.h>

#include <fstream>
#include <system_error>

#include "ulp/base/error.h"
#include "ulp/exchange/onnx_import/file_tensor.h"

namespace ulp::exchange::onnx_import {

namespace {

namespace fs = std::filesystem;
constexpr const char* kReadExternalWhere = "exchange.read_external";

/// The file, once its place is known to be inside the folder.
fs::path found_inside(const fs::path& folder, const std::string& location, const std::string& where) {
  const fs::path relative(location);
  bool inside = !location.empty() && relative.is_relative();
  for (const fs::path& part : relative) inside = inside && part != "..";
  if (!inside)
    fail_file(kReadExternalWhere, "expected a file inside the model's folder, got '", location, "' for ",
              where);
  std::error_code error;
  const fs::path root = fs::canonical(folder.empty() ? fs::path(".") : folder, error);
  const fs::path real = error ? fs::path() : fs::canonical(root / relative, error);
  if (error)
    fail_file(kReadExternalWhere, "expected the file '", location, "' for ", where, ": ", error.message());
  const fs::path below = real.lexically_relative(root);  // links are resolved
  if (below.empty() || *below.begin() == "..")
    fail_file(kReadExternalWhere, "expected a file inside the model's folder, got '", location,
              "', a link out of it, for ", where);
  if (!fs::is_regular_file(real, error))
    fail_file(kReadExternalWhere, "expected a regular file, got '", location, "' for ", where);
  return real;
}

}  // namespace

at::Tensor read_external(const ExternalData& from, const fs::path& folder, const std::vector<int64_t>& sizes,
                         at::ScalarType type, const std::string& where) {
  const fs::path real = found_inside(folder, from.location, where);
  auto bytes = static_cast<int64_t>(c10::elementSize(type));
  for (const int64_t one : sizes) bytes *= one;
  std::error_code error;
  const auto size = static_cast<int64_t>(fs::file_size(real, error));
  const bool fits = !error && from.offset >= 0 && from.offset <= size && bytes <= size - from.offset;
  if (from.length >= 0 && from.length != bytes)
    fail_file(kReadExternalWhere, "expected a length of ", bytes, " bytes for ", where, ", got ",
              from.length);
  if (!fits)
    fail_file(kReadExternalWhere, "expected ", bytes, " bytes from byte ", from.offset, " on for ", where,
              ", got ", size, " bytes in all of '", from.location, "'");
  at::Tensor tensor = at::empty(sizes, type);
  std::ifstream in(real, std::ios::binary);
  in.seekg(from.offset);
  in.read(static_cast<char*>(tensor.mutable_data_ptr()), bytes);
  if (!in) fail_file(kReadExternalWhere, "could not read '", from.location, "' for ", where);
  return tensor;
}

}  // namespace ulp::exchange::onnx_import
