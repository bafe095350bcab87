// pointwise steps in plain loops.
#include <algorithm>
#include <array>

#include "exact_pointwise.h"
#include "plain_loops.h"
#include "plain_values.h"

namespace ulp::runtime::plain {
namespace {

/// Where the element of an operand is that the result's element at `index` reads.
int64_t offset_of(const TensorInfo& info, const std::vector<int64_t>& index, int64_t batch) {
  std::vector<int64_t> sizes = info.shape;
  if (sizes[0] == kBatch) sizes[0] = batch;
  std::vector<int64_t> own(index.end() - static_cast<std::ptrdiff_t>(sizes.size()), index.end());
  for (size_t d = 0; d < sizes.size(); ++d) own[d] = sizes[d] == 1 ? 0 : own[d];
  if (info.layout == Layout::nhwc) {
    std::rotate(own.begin() + 1, own.begin() + 2, own.end());
    std::rotate(sizes.begin() + 1, sizes.begin() + 2, sizes.end());
  }
  int64_t offset = 0;
  for (size_t d = 0; d < sizes.size(); ++d) offset = offset * sizes[d] + own[d];
  return offset;
}

double value_of(const View& x, int64_t at) {
  if (x.info.type == DataType::i64) return static_cast<double>(static_cast<const int64_t*>(x.data)[at]);
  if (x.info.type == DataType::i32) return static_cast<const int32_t*>(x.data)[at];
  return x.get(at);
}

double element(const Plan& plan, const Step& step, const std::vector<View>& x,
               const std::vector<int64_t>& index, int64_t batch) {
  std::vector<double> results;
  for (const PointwiseFunction& function : step.get<PointwiseAttributes>().program.functions) {
    std::array<double, 3> operands{};
    for (size_t i = 0; i < function.operands.size(); ++i) {
      const PointwiseOperand& operand = function.operands[i];
      const auto at = static_cast<size_t>(operand.index);
      switch (operand.kind) {
        case PointwiseOperand::Kind::input:
          operands[i] = value_of(x[at], offset_of(x[at].info, index, batch));
          break;
        case PointwiseOperand::Kind::constant: {
          const std::string role = "c" + std::to_string(at);
          const TensorInfo info{.shape = plan.constants.at(step.constants.at(role)).shape};
          operands[i] = constant_at<float>(plan, step, role.c_str(), offset_of(info, index, batch));
          break;
        }
        case PointwiseOperand::Kind::result:
          operands[i] = results[at];
          break;
        case PointwiseOperand::Kind::number:
          operands[i] = operand.number;
      }
    }
    results.push_back(ulp::test::exact_pointwise(function.op, operands[0], operands[1], operands[2]));
  }
  return results.back();
}

}  // namespace

void pointwise(const Plan& plan, const Step& step, const std::vector<View>& x, const View& y, int64_t batch) {
  std::vector<int64_t> sizes = y.info.shape;
  if (sizes[0] == kBatch) sizes[0] = batch;
  std::vector<int64_t> index(sizes.size(), 0);
  for (int64_t i = 0; i < element_count(y.info, batch); ++i) {
    y.set(offset_of(y.info, index, batch), static_cast<float>(element(plan, step, x, index, batch)));
    for (size_t d = sizes.size(); d-- > 0 && ++index[d] == sizes[d];) index[d] = 0;
  }
}

}  // namespace ulp::runtime::plain
