#include "ulp/libtorch/data_types.h"

#include <iterator>

namespace ulp::libtorch {

namespace {

struct Pair {
  DataType ours;
  c10::ScalarType theirs;
};

constexpr Pair kPairs[] = {
    {DataType::f64, c10::kDouble},    {DataType::f32, c10::kFloat}, {DataType::f16, c10::kHalf},
    {DataType::bf16, c10::kBFloat16}, {DataType::i64, c10::kLong},  {DataType::i32, c10::kInt},
    {DataType::i16, c10::kShort},     {DataType::i8, c10::kChar},   {DataType::u8, c10::kByte}};
static_assert(std::size(kPairs) == kDataTypeCount, "every row of the table of element types has its pair");

}  // namespace

std::optional<DataType> data_type_of(c10::ScalarType type) {
  for (const Pair& pair : kPairs) {
    if (pair.theirs == type) return pair.ours;
  }
  return std::nullopt;
}

std::optional<c10::ScalarType> scalar_type_of(DataType type) {
  for (const Pair& pair : kPairs) {
    if (pair.ours == type) return pair.theirs;
  }
  return std::nullopt;
}

}  // namespace ulp::libtorch
