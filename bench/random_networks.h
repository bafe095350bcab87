// What programs need that write networks with random weights for other runtimes: arrays as files, statistics of batch norms.
#pragma once

#include <torch/torch.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace ulp::bench {

/// NumPy's file of one array of f32, u8 or i64, version 1.
inline void write_npy(const std::filesystem::path& path, const torch::Tensor& tensor) {
  const torch::Tensor dense = tensor.detach().contiguous();
  std::string shape;
  for (const int64_t size : dense.sizes()) shape += std::to_string(size) + ",";
  const bool bytes = dense.scalar_type() == torch::kByte;
  const char* type = dense.is_floating_point() ? "<f4" : bytes ? "|u1" : "<i8";
  std::string header =
      std::string("{'descr': '") + type + "', 'fortran_order': False, 'shape': (" + shape + "), }";
  while ((header.size() + 11) % 64 != 0) header += ' ';
  header += '\n';
  std::ofstream out(path, std::ios::binary);
  out << "\x93NUMPY\x01" << '\0' << static_cast<char>(header.size() % 256)
      << static_cast<char>(header.size() / 256) << header;
  out.write(static_cast<const char*>(dense.const_data_ptr()), static_cast<std::streamsize>(dense.nbytes()));
}

/// Statistics that batch norms would have after some steps on noise.
inline void settle(torch::nn::Module& model) {
  for (const auto& module : model.modules()) {
    auto* norm = module->as<torch::nn::BatchNorm2dImpl>();
    if (norm == nullptr) continue;
    norm->weight.uniform_(0.6, 1.2);
    norm->bias.uniform_(-0.2, 0.2);
  }
}

}  // namespace ulp::bench
