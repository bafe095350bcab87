// Parameters, buffers and constants of a program as entries of an archive, and what describes them.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ulp/exchange/pt2/program.h"
#include "ulp/exchange/pt2/stored_zip.h"
#include "ulp/graph/graph.h"

namespace ulp::exchange::pt2 {

/// The file's number of an element type; 0 for a type without one.
int64_t type_number(at::ScalarType type);

/// A TensorMeta: sizes and strides are lists of SymInts, `type` is the file's number.
Json tensor_meta(int64_t type, Json sizes, Json strides, bool requires_grad = false, int64_t offset = 0);

/// The tensors of one folder of an archive.
class TensorFolder {
 public:
  /// "data/weights/" and "weight_".
  TensorFolder(std::string folder, std::string prefix);

  /// Throws ulp::Error that names a tensor which is not dense, or of a type without a number.
  void add(const std::string& name, const graph::Attribute& attribute);
  /// The TensorMeta of one of them, when all are there.
  Json meta(const at::Tensor& tensor) const;
  /// The entries, and the list of them under this name. Equal views of a memory share an entry, and so do
  /// other views of one memory and type: it is written whole then.
  void write(StoredZip& zip, const std::string& config) const;

 private:
  struct Memory {
    at::Tensor first = {};
    bool several = false;  ///< other views of it than the first
    std::set<at::ScalarType> types = {};
  };
  bool is_whole(const at::Tensor& tensor) const;

  std::string folder_, prefix_;
  std::map<const void*, Memory> memories_;
  std::vector<std::pair<std::string, graph::Attribute>> tensors_;
};

}  // namespace ulp::exchange::pt2
