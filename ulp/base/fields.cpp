#include "ulp/base/fields.h"

#include <cmath>
#include <sstream>
#include <utility>

#include "ulp/base/error.h"

namespace ulp {

namespace {

std::string number_text(double value) {
  std::ostringstream out;
  out.precision(15);
  out << value;
  return out.str();
}

/// Visits numbers and choices and keeps the first problem; the other kinds have no limits.
class LimitChecker final : public FieldVisitor {
 public:
  explicit LimitChecker(std::string path) : path_(std::move(path)) {}

  std::string found;

 protected:
  void on(const FieldInfo&, bool&) override {}
  void on(const FieldInfo& info, int64_t& value) override { check(info, static_cast<double>(value)); }
  void on(const FieldInfo& info, uint64_t& value) override { check(info, static_cast<double>(value)); }
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

 private:
  void check(const FieldInfo& info, double value) {
    if (info.allows(value) || !found.empty()) return;
    found =
        std::string("expected ") + path_ + info.name + " " + info.limits() + ", got " + number_text(value);
  }

  std::string path_;
};

}  // namespace

FieldVisitor::~FieldVisitor() = default;

bool FieldInfo::allows(double value) const {
  if (!has_limits()) return true;
  const bool low = above_min ? value > min : value >= min;
  const bool high = below_max ? value < max : value <= max;
  return low && high;
}

std::string FieldInfo::limits() const {
  if (!has_limits()) return {};
  if (std::isinf(max)) return (above_min ? "> " : ">= ") + number_text(min);
  if (std::isinf(min)) return (below_max ? "< " : "<= ") + number_text(max);
  return std::string("in ") + (above_min ? "(" : "[") + number_text(min) + ", " + number_text(max) +
         (below_max ? ")" : "]");
}

std::string one_of(std::span<const char* const> words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? " or " : ", ";
    text += words[i];
  }
  return text;
}

std::string limit_problem(const std::string& path, FunctionRef<void(FieldVisitor&)> fields) {
  LimitChecker checker(path);
  fields(checker);
  return std::move(checker.found);
}

void check_limits(const char* where, const std::string& path, FunctionRef<void(FieldVisitor&)> fields) {
  const std::string found = limit_problem(path, fields);
  if (!found.empty()) fail(where, found);
}

}  // namespace ulp
