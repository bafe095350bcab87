// Programs of pointwise steps as text.
#include <charconv>
#include <sstream>

#include "ulp/runtime/ops/pointwise_op.h"

namespace ulp {

template <>
struct EnumNames<kernels::PointwiseOp> {
#define ULP_WORD(name, ...) Word<kernels::PointwiseOp>{kernels::PointwiseOp::name, #name},
  static constexpr auto list = std::to_array<Word<kernels::PointwiseOp>>({ULP_POINTWISE(ULP_WORD)});
#undef ULP_WORD
};

}  // namespace ulp

namespace ulp::runtime {
namespace {

/// Longer texts are no programs of an engine.
constexpr size_t kMaxText = 4096;

std::string operand_text(const PointwiseOperand& operand) {
  static constexpr char kLetters[] = "xct";
  if (operand.kind != PointwiseOperand::Kind::number) {
    return kLetters[static_cast<int>(operand.kind)] + std::to_string(operand.index);
  }
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof(digits), operand.number).ptr;
  return {digits, end};
}

template <typename Number>
bool parse(std::string_view text, Number& value) {
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, value);
  return read.ec == std::errc() && read.ptr == end;
}

std::optional<PointwiseOperand> operand_of(const std::string& word) {
  using Kind = PointwiseOperand::Kind;
  PointwiseOperand operand;
  const std::string_view index = std::string_view(word).substr(1);
  switch (word[0]) {
    case 'x':
      operand.kind = Kind::input;
      break;
    case 'c':
      operand.kind = Kind::constant;
      break;
    case 't':
      operand.kind = Kind::result;
      break;
    default:
      operand.kind = Kind::number;
      return parse(word, operand.number) ? std::optional(operand) : std::nullopt;
  }
  return parse(index, operand.index) && operand.index >= 0 ? std::optional(operand) : std::nullopt;
}

std::optional<PointwiseFunction> function_of(const std::string& text) {
  std::istringstream words(text);
  std::string word;
  if (!(words >> word)) return std::nullopt;
  const std::optional<kernels::PointwiseOp> op = from_word<kernels::PointwiseOp>(word);
  if (!op) return std::nullopt;
  PointwiseFunction function{*op, {}};
  while (words >> word) {
    const std::optional<PointwiseOperand> operand = operand_of(word);
    if (!operand) return std::nullopt;
    function.operands.push_back(*operand);
  }
  const bool complete = function.operands.size() == static_cast<size_t>(kernels::operand_count(*op));
  return complete ? std::optional(function) : std::nullopt;
}

}  // namespace

std::string PointwiseText::text() const {
  std::string text;
  for (const PointwiseFunction& function : functions) {
    if (!text.empty()) text += "; ";
    text += enum_name(function.op);
    for (const PointwiseOperand& operand : function.operands) text += ' ' + operand_text(operand);
  }
  return text;
}

std::optional<PointwiseText> PointwiseText::from_text(const std::string& text) {
  if (text.size() > kMaxText) return std::nullopt;
  PointwiseText program;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line, ';');) {
    const std::optional<PointwiseFunction> function = function_of(line);
    if (!function) return std::nullopt;
    program.functions.push_back(*function);
  }
  return program;
}

}  // namespace ulp::runtime
