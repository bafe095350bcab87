#include "ulp/prune/storage/accounting.h"

namespace ulp::prune {
namespace {

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t size : shape) text += (text.empty() ? "" : "x") + std::to_string(size);
  return text.empty() ? "scalar" : text;
}

std::vector<std::string> row_of(const std::string& name, const std::string& shape,
                                const std::string& positions, const std::string& values, int64_t elements,
                                int64_t stored, int64_t dense, const TensorBytes& bytes) {
  std::vector<std::string> row = {name, shape, positions, values};
  for (const int64_t number : {elements, stored, dense, bytes.values, bytes.codebook, bytes.positions,
                               bytes.header, bytes.total()}) {
    row.push_back(std::to_string(number));
  }
  return row;
}

}  // namespace

int64_t Accounting::dense_bytes() const {
  int64_t sum = 0;
  for (const TensorAccount& tensor : tensors) sum += tensor.dense_bytes;
  return sum;
}

int64_t Accounting::file_bytes() const {
  int64_t sum = container_bytes;
  for (const TensorAccount& tensor : tensors) sum += tensor.bytes.total();
  return sum;
}

double Accounting::ratio() const {
  const auto file = static_cast<double>(file_bytes());
  return file > 0 ? static_cast<double>(dense_bytes()) / file : 0;
}

std::vector<std::vector<std::string>> Accounting::rows() const {
  std::vector<std::vector<std::string>> table = {{"tensor", "shape", "positions", "values", "elements",
                                                  "stored", "dense bytes", "value bytes", "codebook bytes",
                                                  "position bytes", "header bytes", "bytes"}};
  TensorBytes sum{.header = container_bytes};
  int64_t elements = 0, stored = 0;
  for (const TensorAccount& one : tensors) {
    table.push_back(row_of(one.name, shape_text(one.shape), one.positions, one.values, one.elements,
                           one.stored, one.dense_bytes, one.bytes));
    elements += one.elements;
    stored += one.stored;
    sum.values += one.bytes.values;
    sum.codebook += one.bytes.codebook;
    sum.positions += one.bytes.positions;
    sum.header += one.bytes.header;
  }
  table.push_back(row_of("container", "", "", "", 0, 0, 0, {.header = container_bytes}));
  table.push_back(row_of("sum", "", "", "", elements, stored, dense_bytes(), sum));
  return table;
}

}  // namespace ulp::prune
