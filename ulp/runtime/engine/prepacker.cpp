#include "ulp/runtime/engine/prepacker.h"

#include <bit>
#include <sstream>

#include "ulp/base/error.h"
#include "ulp/base/fields_json.h"
#include "ulp/runtime/ops/conv_block.h"

namespace ulp::runtime {
namespace {

void write(std::ostream& out, const TensorInfo& tensor, bool sizes) {
  out << '|' << to_string(tensor.type);
  if (sizes) out << shape_text(tensor.shape);
  out << to_string(tensor.layout) << std::bit_cast<uint32_t>(tensor.scale) << ',' << tensor.zero_point;
}

}  // namespace

std::string use_of(const StepView& view, bool sizes) {
  const Step& step = view.step();
  std::ostringstream out;
  out << to_string(step.op);
  out << '|' << std::visit([](const auto& held) { return fields_to_json(held).dump(); }, step.attributes);
  for (const auto& [role, name] : step.constants) {
    out << '|' << role << '=' << name.size() << ':' << name << shape_text(view.constant(role.c_str())->shape);
  }
  for (size_t i = 0; i < view.input_count(); ++i) write(out, view.input(i), sizes);
  write(out, view.output(), sizes);
  return std::move(out).str();
}

std::shared_ptr<const Runner> Prepacker::prepare(const StepView& view) {
  std::weak_ptr<const Runner>& known = made_[use_of(view, true)];
  if (std::shared_ptr<const Runner> runner = known.lock()) return runner;
  const OpDef& def = op_def(view.step().op);
  const size_t bytes = packs_.has(view) ? 0 : def.prepared_bytes(view);
  if (bytes > *left_) {
    fail(ErrorCode::out_of_memory, "runtime.Engine", "expected constants and tables of at most ", budget_,
         " bytes in all (EngineOptions::max_constant_bytes), got ", bytes, " more in step '",
         view.step().name, "' (", to_string(view.step().op), ") where ", left_->load(), " are left");
  }
  std::unique_ptr<Runner> made = def.prepare(view, isa_);
  std::shared_ptr<const Runner> runner = count(std::move(made), bytes, packs_.has(view) ? 0 : bytes);
  known = runner;
  return runner;
}

std::shared_ptr<const Runner> Prepacker::prepare_block(std::span<const StepView> views) {
  size_t bytes = 0;
  for (const StepView& view : views) bytes += op_def(view.step().op).prepared_bytes(view);
  if (bytes > *left_ / 2) return nullptr;
  std::unique_ptr<Runner> made = prepare_conv_block(views, isa_);
  return made == nullptr ? nullptr : count(std::move(made), bytes, bytes);
}

/// Takes bytes of the budget, of which `given_back` come back with the runner's end.
std::shared_ptr<const Runner> Prepacker::count(std::unique_ptr<Runner> made, size_t bytes,
                                               size_t given_back) {
  *left_ -= bytes;
  return {made.release(), [left = left_, given_back](const Runner* ended) {
            delete ended;
            *left += given_back;
          }};
}

void Prepacker::forget_ended() {
  std::erase_if(made_, [](const auto& entry) { return entry.second.expired(); });
}

}  // namespace ulp::runtime
