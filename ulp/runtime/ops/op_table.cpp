#include <array>

#include "ulp/runtime/ops/op.h"

namespace ulp {

template <>
struct EnumNames<runtime::Op> {
#define ULP_WORD(name, ...) Word<runtime::Op>{runtime::Op::name, #name},
  static constexpr auto list = std::to_array<Word<runtime::Op>>({ULP_OPS(ULP_WORD)});
#undef ULP_WORD
};

}  // namespace ulp

namespace ulp::runtime {

const OpDef& op_def(Op op) {
#define ULP_ROW(name, ...) &ops::name,
  static constexpr std::array kDefinitions = {ULP_OPS(ULP_ROW)};
#undef ULP_ROW
  return *kDefinitions[static_cast<size_t>(op)];
}

size_t packed_constants(const StepView& view) {
  size_t bytes = 0;
  for (const auto& [role, name] : view.step().constants)
    bytes += 2 * view.constant(role.c_str())->bytes.size();
  return bytes;
}

std::optional<Op> op_from_word(const std::string& word) {
  return from_word<Op>(word);
}

const char* to_string(Op op) {
  return enum_name(op);
}

Attributes::Attributes() = default;
Attributes::Attributes(const Attributes& other) = default;
Attributes::Attributes(Attributes&& other) noexcept = default;
Attributes& Attributes::operator=(const Attributes& other) = default;
Attributes& Attributes::operator=(Attributes&& other) noexcept = default;
Attributes::~Attributes() = default;

bool Attributes::operator==(const Attributes& other) const {
  return static_cast<const AnyAttributes&>(*this) == static_cast<const AnyAttributes&>(other);
}

Attributes default_attributes(Op op) {
  switch (op) {
#define ULP_ROW(name, attributes) \
  case Op::name:                  \
    return attributes{};
    ULP_OPS(ULP_ROW)
#undef ULP_ROW
  }
  return {};
}

}  // namespace ulp::runtime
