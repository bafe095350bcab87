#include "ulp/runtime/engine/preparer.h"

#include <bit>
#include <sstream>

#include "ulp/base/error.h"
#include "ulp/base/fields_json.h"

namespace ulp::runtime {
namespace {

void write(std::ostream& out, const TensorInfo& tensor) {
  out << '|' << to_string(tensor.type) << shape_text(tensor.shape) << to_string(tensor.layout)
      << std::bit_cast<uint32_t>(tensor.scale) << ',' << tensor.zero_point;
}

/// All that a runner is made from, as text. Names of constants come with their lengths, so that no two lists
/// read the same.
std::string use_of(const StepView& view) {
  const Step& step = view.step();
  std::ostringstream out;
  out << to_string(step.op);
  out << '|' << std::visit([](const auto& held) { return fields_to_json(held).dump(); }, step.attributes);
  for (const auto& [role, name] : step.constants) out << '|' << role << '=' << name.size() << ':' << name;
  for (size_t i = 0; i < view.input_count(); ++i) write(out, view.input(i));
  write(out, view.output());
  return std::move(out).str();
}

}  // namespace

std::shared_ptr<const Runner> Preparer::prepare(const StepView& view) {
  std::shared_ptr<const Runner>& runner = made_[use_of(view)];
  if (runner) return runner;
  const OpDef& def = op_def(view.step().op);
  const size_t bytes = def.prepared_bytes(view);
  if (bytes > left_) {
    fail("runtime.Engine", "expected constants and tables of at most ", budget_,
         " bytes in all (EngineOptions::max_constant_bytes), got ", bytes, " more in step '",
         view.step().name, "' (", to_string(view.step().op), ") where ", left_, " are left");
  }
  left_ -= bytes;
  runner = def.prepare(view, isa_);
  return runner;
}

}  // namespace ulp::runtime
