#include "ulp/train/compile/plan.h"

#include <algorithm>

#include "ulp/runtime/engine/arena.h"

namespace ulp::train::compiled {

int StepPlan::root(int matrix) const {
  while (matrices[static_cast<size_t>(matrix)].alias_of >= 0)
    matrix = matrices[static_cast<size_t>(matrix)].alias_of;
  return matrix;
}

std::vector<int> StepPlan::operands(const Instruction& one) const {
  std::vector<int> all = {one.out, one.a, one.b, one.c, one.d, one.e};
  if (one.op == Op::recurrent || one.op == Op::recurrent_gradient) {
    const Recurrent& of = recurrents[static_cast<size_t>(one.detail)];
    all.insert(all.end(), {of.gates, of.hidden_gates, of.hidden_bias, of.packed, of.result, of.before,
                           of.cells, of.first_state, of.first_cell, of.result_gradient, of.gates_gradient,
                           of.hidden_gradient, of.first_state_gradient, of.first_cell_gradient});
    return all;
  }
  if (one.op != Op::attention && one.op != Op::attention_gradient) return all;
  const Attention& of = attentions[static_cast<size_t>(one.detail)];
  for (const HeadsMatrix& heads : {of.query, of.key, of.value, of.result, of.query_gradient, of.key_gradient,
                                   of.value_gradient, of.result_gradient})
    all.push_back(heads.matrix);
  all.push_back(of.log_sums);
  all.push_back(of.mask);
  return all;
}

ArenaPlan place_matrices(const StepPlan& plan, int64_t batch) {
  std::vector<runtime::ArenaBuffer> buffers;
  std::vector<int> buffer_of(plan.matrices.size(), -1);
  for (size_t i = 0; i < plan.instructions.size(); ++i) {
    const Instruction& one = plan.instructions[i];
    for (const int operand : plan.operands(one)) {
      if (operand < 0) continue;
      const auto root = static_cast<size_t>(plan.root(operand));
      const PlanMatrix& matrix = plan.matrices[root];
      if (matrix.home != Home::arena) continue;
      const int now = static_cast<int>(i);
      if (buffer_of[root] < 0) {
        buffer_of[root] = static_cast<int>(buffers.size());
        const int64_t floats = matrix.rows.at(batch) * matrix.stride;
        buffers.push_back({static_cast<size_t>(floats) * sizeof(float), now, now});
      }
      buffers[static_cast<size_t>(buffer_of[root])].last = now;
    }
  }
  // Callers read the result behind the forward part.
  if (plan.result >= 0 && buffer_of[static_cast<size_t>(plan.root(plan.result))] >= 0) {
    runtime::ArenaBuffer& result =
        buffers[static_cast<size_t>(buffer_of[static_cast<size_t>(plan.root(plan.result))])];
    result.last = std::max(result.last, static_cast<int>(plan.forward_end));
  }
  const runtime::ArenaLayout layout = runtime::plan_arena(buffers);
  ArenaPlan placed;
  placed.offsets.resize(plan.matrices.size());
  placed.floats = layout.total / sizeof(float);
  for (size_t m = 0; m < plan.matrices.size(); ++m) {
    const int buffer = buffer_of[static_cast<size_t>(plan.root(static_cast<int>(m)))];
    if (buffer >= 0) placed.offsets[m] = layout.offsets[static_cast<size_t>(buffer)] / sizeof(float);
  }
  return placed;
}

}  // namespace ulp::train::compiled
