#include "ulp/app/checksum.h"

#include <torch/types.h>
#include <zlib.h>

#include <fstream>
#include <vector>

#include "ulp/base/error.h"

namespace ulp::app {

uint32_t checksum_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> bytes(1 << 20);
  uLong sum = crc32_z(0, nullptr, 0);
  while (file) {
    file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    const auto count = static_cast<size_t>(file.gcount());
    if (count > 0) sum = crc32_z(sum, reinterpret_cast<const Bytef*>(bytes.data()), count);
  }
  if (!file.eof()) fail_file("app.checksum_of", "could not read '", path.string(), "'");
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
