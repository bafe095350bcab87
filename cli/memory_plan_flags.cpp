#include "cli/memory_plan_flags.h"

#include <CLI/CLI.hpp>

#include "cli/field_flags.h"
#include "ulp/base/fields.h"

namespace ulp::cli {

void check_memory_plan(const app::MemoryPlan& plan, const train::TrainOptions& options) {
  auto conflict = plan.conflict();
  if (!conflict) conflict = plan.conflict_with(options);
  if (conflict) {
    throw CLI::ValidationError(in_flags(*conflict, [&](FieldVisitor& visitor) {
      const_cast<app::MemoryPlan&>(plan).visit_fields(visitor);  // which only reads
      const_cast<train::TrainOptions&>(options).visit_fields(visitor);
    }));
  }
  plan.validate();
}

}  // namespace ulp::cli
