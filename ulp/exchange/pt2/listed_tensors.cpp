#include "ulp/exchange/pt2/listed_tensors.h"

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/exchange/pt2/where.h"
#include "ulp/graph/named_arguments.h"

namespace ulp::exchange::pt2 {

namespace {

using c10::IValue;

bool makes_list(const c10::FunctionSchema& schema) {
  return std::ranges::any_of(schema.returns(), [](const c10::Argument& result) {
    return result.type()->kind() == c10::TypeKind::ListType;
  });
}

/// Grids have a dimension for each of their tensors.
void check_grid(const std::string& name, const graph::NamedArguments& given) {
  int64_t dims = 0;
  if (name == "aten::combinations") dims = given["r"].toInt();
  if (name == "aten::meshgrid" || name == "aten::cartesian_prod")
    dims = static_cast<int64_t>(given["tensors"].toListRef().size());
  if (dims > kMostDims)
    fail_file(kImportPt2Where, "expected a grid of at most ", kMostDims, " dimensions, got ", dims);
}

}  // namespace

int64_t listed_tensors(const c10::FunctionSchema& schema, const torch::jit::Stack& arguments) {
  const graph::NamedArguments given(schema, arguments);
  check_grid(schema.name(), given);
  if (!makes_list(schema)) return 0;
  if (given["tensor_indices_or_sections"].isTensor())
    fail_file(kImportPt2Where, "expected places that are numbers, got those of a tensor");
  for (const char* name : {"chunks", "sections"}) {
    if (const IValue number = given[name]; number.isInt()) return number.toInt();
  }
  for (const char* name : {"split_size", "split_sizes", "indices"}) {
    if (const IValue numbers = given[name]; numbers.isIntList())
      return static_cast<int64_t>(numbers.toIntVector().size()) + 1;
  }
  const IValue self = given["self"], dim = given["dim"], part = given["split_size"];
  const bool along = part.isInt() || schema.name().starts_with("aten::unbind");
  if (!along || !self.isTensor() || !dim.isInt()) return 0;
  const at::Tensor& x = self.toTensor();
  if (dim.toInt() < -x.dim() || dim.toInt() >= x.dim()) return 0;  // which the operator refuses
  return x.size(dim.toInt()) / std::max<int64_t>(part.isInt() ? part.toInt() : 1, 1);
}

}  // namespace ulp::exchange::pt2
