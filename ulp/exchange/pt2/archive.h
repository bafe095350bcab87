// A .pt2 archive of torch.export: a zip file with one folder, whose entries are stored as they are.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/exchange/pt2/program.h"
#include "ulp/graph/graph.h"
#include "ulp/io/zip_archive.h"

namespace ulp::exchange::pt2 {

class Archive {
 public:
  /// Throws FileError for what is no such archive, has several programs, or was written on a machine of other byte order.
  explicit Archive(const std::filesystem::path& path);
  Archive(std::string_view bytes, const std::filesystem::path& name);

  Program program() const;
  /// Parameters, buffers and constants of the program by their names in the module. Names that share memory share it here. Memory
  /// is that of the archive's entries. Throws FileError that names the tensor.
  std::vector<std::pair<std::string, graph::Attribute>> tensors(const Program& program) const;

 private:
  void check();
  const io::ZipEntry* find(const std::string& name) const;
  /// A text, of the archive's folder.
  std::string text(const std::string& name) const;

  io::ZipArchive zip_;
  std::string folder_, model_;
  std::map<std::string, const io::ZipEntry*> entries_;  ///< without the folder
};

}  // namespace ulp::exchange::pt2
