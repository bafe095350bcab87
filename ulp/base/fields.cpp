#include "ulp/base/fields.h"

#include <cmath>
#include <sstream>

#include "ulp/base/error.h"

namespace ulp {

namespace {

std::string number_text(double value) {
  std::ostringstream out;
  out.precision(15);
  out << value;
  return out.str();
}

/// Visits numbers; the other kinds have no limits.
class LimitChecker final : public FieldVisitor {
 public:
  LimitChecker(const char* where, std::string path) : where_(where), path_(std::move(path)) {}

 protected:
  void on(const FieldInfo&, bool&) override {}
  void on(const FieldInfo& info, int64_t& value) override { check(info, static_cast<double>(value)); }
  void on(const FieldInfo& info, uint64_t& value) override { check(info, static_cast<double>(value)); }
  void on(const FieldInfo& info, double& value) override { check(info, value); }
  void on(const FieldInfo&, std::string&) override {}
  void on(const FieldInfo&, std::vector<std::string>&) override {}
  void on_choice(const FieldInfo&, ChoiceField&) override {}
  void on_group(const FieldInfo& info, const GroupField& field) override {
    LimitChecker inner(where_, path_ + info.name + ".");
    field.fields(inner);
  }
  void on_optional(const FieldInfo&, const OptionalField& field) override {
    if (field.present) field.value(*this);
  }
  void on_list(const FieldInfo& info, const ListField& field) override {
    for (size_t i = 0; i < field.size; ++i) {
      LimitChecker inner(where_, path_ + info.name + "[" + std::to_string(i) + "].");
      field.element(i, inner);
    }
  }
  void on_custom(const FieldInfo&, const CustomField&) override {}

 private:
  void check(const FieldInfo& info, double value) const {
    if (info.allows(value)) return;
    fail(where_, "expected ", path_, info.name, " ", info.limits(), ", got ", number_text(value));
  }

  const char* where_;
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

void check_limits(const char* where, const std::string& path, FunctionRef<void(FieldVisitor&)> fields) {
  LimitChecker checker(where, path);
  fields(checker);
}

}  // namespace ulp
