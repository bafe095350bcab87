#include "ulp/base/fields.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <sstream>
#include <string_view>
#include <type_traits>
#include <utility>

#include "ulp/base/error.h"

namespace ulp {

namespace {

/// Whole numbers in full as far as doubles hold them all; others with so many digits.
template <typename Number>
std::string number_text(Number value, int digits = 15) {
  std::ostringstream out;
  out.precision(digits);
  if constexpr (std::is_floating_point_v<Number>) {
    if (std::fabs(value) <= 0x1p53 && value == std::trunc(value)) out << std::fixed << std::setprecision(0);
  }
  out << value;
  return out.str();
}

/// The ends of a type (3.40282e+38) need no more digits.
std::string bound_text(double value) {
  return number_text(value, std::fabs(value) > 0x1p53 ? 6 : 15);
}

std::string range_text(double min, double max, bool above_min, bool below_max) {
  if (std::isinf(min) && std::isinf(max)) return {};
  if (std::isinf(max)) return (above_min ? "> " : ">= ") + bound_text(min) + (below_max ? " and finite" : "");
  if (std::isinf(min)) return (below_max ? "< " : "<= ") + bound_text(max);
  return std::string("in ") + (above_min ? "(" : "[") + bound_text(min) + ", " + bound_text(max) +
         (below_max ? ")" : "]");
}

/// Visits numbers and choices and keeps the first problem; the other kinds have no limits.
class LimitChecker final : public FieldVisitor {
 public:
  explicit LimitChecker(std::string path) : path_(std::move(path)) {}

  std::string found;

 protected:
  void on(const FieldInfo&, bool&) override {}
  void on(const FieldInfo& info, int64_t& value) override { check(info, value); }
  void on(const FieldInfo& info, uint64_t& value) override { check(info, value); }
  void on(const FieldInfo& info, double& value) override { check(info, value); }
  void on(const FieldInfo&, std::string&) override {}
  void on(const FieldInfo&, std::vector<std::string>&) override {}
  void on_choice(const FieldInfo& info, ChoiceField& field) override {
    if (field.index < field.words.size() || !found.empty()) return;
    found = "expected " + path_ + info.name + " to be " + one_of(field.words) + ", got an unknown value";
  }
  void on_group(const FieldInfo& info, const GroupField& field) override {
    const std::string outer = std::exchange(path_, path_ + info.name + ".");
    field.fields(*this);
    path_ = outer;
  }
  void on_optional(const FieldInfo&, const OptionalField& field) override {
    if (field.present) field.value(*this);
  }
  void on_list(const FieldInfo& info, const ListField& field) override {
    for (size_t i = 0; i < field.size; ++i) {
      const std::string outer = std::exchange(path_, path_ + info.name + "[" + std::to_string(i) + "].");
      field.element(i, *this);
      path_ = outer;
    }
  }
  void on_custom(const FieldInfo&, const CustomField&) override {}
  void on_text(const FieldInfo&, const TextField&) override {}

 private:
  template <typename Number>
  void check(const FieldInfo& info, Number value) {
    if (info.allows(static_cast<double>(value)) || !found.empty()) return;
    found =
        std::string("expected ") + path_ + info.name + " " + info.limits() + ", got " + number_text(value);
  }

  std::string path_;
};

}  // namespace

FieldVisitor::~FieldVisitor() = default;

/// Hands the named fields on.
class FieldSelection final : public FieldVisitor {
 public:
  FieldSelection(FieldVisitor& visitor, std::span<const char* const> names)
      : visitor_(visitor), names_(names) {}

 protected:
  void on(const FieldInfo& info, bool& value) override {
    if (is_named(info)) visitor_.on(info, value);
  }
  void on(const FieldInfo& info, int64_t& value) override {
    if (is_named(info)) visitor_.on(info, value);
  }
  void on(const FieldInfo& info, uint64_t& value) override {
    if (is_named(info)) visitor_.on(info, value);
  }
  void on(const FieldInfo& info, double& value) override {
    if (is_named(info)) visitor_.on(info, value);
  }
  void on(const FieldInfo& info, std::string& value) override {
    if (is_named(info)) visitor_.on(info, value);
  }
  void on(const FieldInfo& info, std::vector<std::string>& value) override {
    if (is_named(info)) visitor_.on(info, value);
  }
  void on_choice(const FieldInfo& info, ChoiceField& field) override {
    if (is_named(info)) visitor_.on_choice(info, field);
  }
  void on_group(const FieldInfo& info, const GroupField& field) override {
    if (is_named(info)) visitor_.on_group(info, field);
  }
  void on_optional(const FieldInfo& info, const OptionalField& field) override {
    if (is_named(info)) visitor_.on_optional(info, field);
  }
  void on_list(const FieldInfo& info, const ListField& field) override {
    if (is_named(info)) visitor_.on_list(info, field);
  }
  void on_custom(const FieldInfo& info, const CustomField& field) override {
    if (is_named(info)) visitor_.on_custom(info, field);
  }
  void on_text(const FieldInfo& info, const TextField& field) override {
    if (is_named(info)) visitor_.on_text(info, field);
  }

 private:
  bool is_named(const FieldInfo& info) const {
    return std::ranges::find(names_, std::string_view(info.name)) != names_.end();
  }

  FieldVisitor& visitor_;
  std::span<const char* const> names_;
};

void visit_some(FieldVisitor& visitor, std::span<const char* const> names,
                FunctionRef<void(FieldVisitor&)> fields) {
  FieldSelection selection(visitor, names);
  fields(selection);
}

void FieldVisitor::on_text(const FieldInfo& info, const TextField& field) {
  std::string text = field.text;
  on(info, text);
  if (text != field.text && !field.set(text))
    fail(ErrorCode::bad_option, "base.FieldVisitor", "expected ", field.expected, " in '", info.name,
         "', got '", text, "'");
}

bool FieldInfo::allows(double value) const {
  if (!has_limits()) return true;
  const bool low = above_min ? value > min : value >= min;
  const bool high = below_max ? value < max : value <= max;
  return low && high;
}

std::string FieldInfo::limits() const {
  return range_text(min, max, above_min, below_max);
}

std::string FieldInfo::type_limits() const {
  return range_text(type_min, type_max, false, false);
}

std::string limit_problem(const std::string& path, FunctionRef<void(FieldVisitor&)> fields) {
  LimitChecker checker(path);
  fields(checker);
  return std::move(checker.found);
}

void check_limits(const char* where, const std::string& path, FunctionRef<void(FieldVisitor&)> fields) {
  const std::string found = limit_problem(path, fields);
  if (!found.empty()) fail(ErrorCode::bad_option, where, found);
}

std::string spell_fields(const std::string& sentence, FieldSpelling spell) {
  std::string text;
  size_t at = 0;
  while (true) {
    const size_t open = sentence.find('{', at);
    const size_t close = open == std::string::npos ? open : sentence.find('}', open);
    if (close == std::string::npos) return text + sentence.substr(at);
    const std::string field = sentence.substr(open + 1, close - open - 1);
    const size_t equals = field.find('=');
    text += sentence.substr(at, open - at);
    text += equals == std::string::npos ? spell(field, {})
                                        : spell(field.substr(0, equals), field.substr(equals + 1));
    at = close + 1;
  }
}

std::string FieldConflict::text() const {
  return spell_fields(sentence, [](const std::string& name, const std::string& value) {
    return value.empty() ? name : name + " '" + value + "'";
  });
}

}  // namespace ulp
