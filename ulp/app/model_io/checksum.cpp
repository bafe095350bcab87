#include "ulp/app/model_io/checksum.h"

#include <torch/types.h>
#include <zlib.h>

#include <algorithm>
#include <fstream>
#include <system_error>
#include <vector>

#include "ulp/base/error.h"

namespace ulp::app {

namespace {

uLong with_file(uLong sum, const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> bytes(1 << 20);
  while (file) {
    file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    const auto count = static_cast<size_t>(file.gcount());
    if (count > 0) sum = crc32_z(sum, reinterpret_cast<const Bytef*>(bytes.data()), count);
  }
  if (!file.eof()) fail_file("app.checksum_of", "could not read '", path.string(), "'");
  return sum;
}

}  // namespace

uint32_t checksum_of(const std::filesystem::path& path) {
  std::error_code error;
  std::vector<std::filesystem::path> files;
  if (std::filesystem::is_directory(path, error)) {
    for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
      if (entry.is_regular_file(error)) files.push_back(entry.path());
    }
    std::ranges::sort(files);
  } else {
    files.push_back(path);
  }
  uLong sum = crc32_z(0, nullptr, 0);
  for (const std::filesystem::path& file : files) sum = with_file(sum, file);
  return static_cast<uint32_t>(sum);
}

uint32_t checksum_of(train::BatchStream& epoch) {
  uLong sum = crc32_z(0, nullptr, 0);
  while (const auto batch = epoch.next()) {
    const at::Tensor inputs = batch->inputs.contiguous();
    sum = crc32_z(sum, static_cast<const Bytef*>(inputs.const_data_ptr()), inputs.nbytes());
  }
  return static_cast<uint32_t>(sum);
}

}  // namespace ulp::app
