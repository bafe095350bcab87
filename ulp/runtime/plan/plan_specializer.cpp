#include "ulp/runtime/plan/plan_specializer.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>

#include "ulp/base/error.h"
#include "ulp/runtime/plan/plan_json.h"
#include "ulp/runtime/plan/step_view.h"
#include "ulp/runtime/plan/verify.h"

namespace ulp::runtime {
namespace {

using Json = nlohmann::json;

/// What follows sizes, as a word of a problem says.
int64_t value_of(const Polynomial& polynomial, std::span<const int64_t> sizes, const std::string& what) {
  try {
    return polynomial.at(sizes);
  } catch (const Error& error) {
    problem(what, " does not follow the free dimensions: ", error.what());
  }
}

/// A word of a path (RFC 6901).
std::string unescaped(std::string word) {
  for (size_t i = 0; (i = word.find('~', i)) != std::string::npos; ++i) {
    const bool slash = word.compare(i, 2, "~1") == 0;
    if (slash || word.compare(i, 2, "~0") == 0) word.replace(i, 2, slash ? "/" : "~");
  }
  return word;
}

/// What stands at a path: a number, a text, or null for a field at its default. Elements of arrays exist.
Json& value_at(Json& root, const std::string& path) {
  const auto refuse = [&]() { problem("expected the path of a number of the plan, got '", path, "'"); };
  Json* at = &root;
  constexpr int64_t kMostWords = 8;
  const bool inside = path.starts_with("/tensors/") || path.starts_with("/steps/");
  if (!inside || std::ranges::count(path, '/') > kMostWords) refuse();
  for (size_t begin = 1; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string word = unescaped(path.substr(begin, end - begin));
    if (at->is_array()) {
      size_t index = 0;
      const auto [last, error] = std::from_chars(word.data(), word.data() + word.size(), index);
      if (error != std::errc() || last != word.data() + word.size() || index >= at->size()) refuse();
      at = &(*at)[index];
    } else if (at->is_object()) {
      at = &(*at)[word];
      if (at->is_null() && end < path.size()) *at = Json::object();
    } else {
      refuse();
    }
    begin = end + 1;
  }
  return *at;
}

/// Puts a number in the place of another one.
void set_number(Json& numbers, const SymbolicNumber& number, int64_t value) {
  Json& at = value_at(numbers, number.path);
  const bool text = number.word >= 0 && at.is_string();
  if (!text && (number.word >= 0 || !(at.is_number_integer() || at.is_null())))
    problem("expected the path of a number of the plan, got '", number.path, "'");
  if (!text) {
    at = value;
    return;
  }
  auto& words = at.get_ref<std::string&>();
  const std::vector<TextWord> found = words_of(words);
  const auto index = static_cast<size_t>(number.word);
  if (index >= found.size() || !is_whole(found[index].text))
    problem("expected word ", number.word, " of '", number.path, "' to be a number");
  words.replace(found[index].begin, found[index].text.size(), std::to_string(value));
}

std::vector<int64_t> largest(const SymbolicNumbers& following) {
  std::vector<int64_t> sizes;
  for (const DynamicDimension& free : following.free) sizes.push_back(free.max);
  return sizes;
}

/// The smallest sizes that are multiples.
std::vector<int64_t> smallest(const SymbolicNumbers& following) {
  std::vector<int64_t> sizes;
  for (const DynamicDimension& free : following.free) sizes.push_back(free.smallest());
  return sizes;
}

void check_free(const SymbolicNumbers& following) {
  constexpr size_t kMostFree = 8;
  constexpr int64_t kLargest = int64_t{1} << 31;
  if (following.free.size() > kMostFree)
    problem("expected at most ", kMostFree, " free dimensions, got ", following.free.size());
  for (size_t i = 0; i < following.free.size(); ++i) {
    const DynamicDimension& free = following.free[i];
    const bool range = free.min >= 1 && free.min <= free.max && free.max <= kLargest && free.multiple >= 1 &&
                       free.multiple <= free.max && free.max % free.multiple == 0;
    if (!range)
      problem("free dimension '", free.name, "': expected 1 <= min <= max, a multiple, got ", free.min, ", ",
              free.max, " and multiples of ", free.multiple);
    for (size_t j = 0; j < i; ++j) {
      if (following.free[j].name == free.name) problem("free dimension '", free.name, "' is listed twice");
    }
    if (free.name.empty()) problem("free dimension ", i, " has no name");
  }
}

void check_polynomial(const Polynomial& polynomial, size_t sizes, const std::string& what) {
  constexpr int32_t kMostPower = 4;
  constexpr size_t kMostTerms = 256;
  if (polynomial.terms.size() > kMostTerms) problem(what, ": expected at most ", kMostTerms, " terms");
  for (const Polynomial::Term& term : polynomial.terms) {
    bool good = term.denominator >= 1 && term.powers.size() <= sizes;
    for (const int32_t power : term.powers) good = good && power >= 0 && power <= kMostPower;
    if (!good)
      problem(what, ": expected denominators above 0 and powers of 0 to ", kMostPower, " of ", sizes,
              " sizes");
  }
}

}  // namespace

std::vector<TextWord> words_of(const std::string& text) {
  constexpr const char* kBetween = " \t\n,;()";
  std::vector<TextWord> words;
  for (size_t begin = text.find_first_not_of(kBetween); begin != std::string::npos;) {
    const size_t end = std::min(text.find_first_of(kBetween, begin), text.size());
    words.push_back({begin, text.substr(begin, end - begin)});
    begin = text.find_first_not_of(kBetween, end);
  }
  return words;
}

bool is_whole(const std::string& word) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  return error == std::errc() && end == word.data() + word.size();
}

Constant corner_of(const std::string& name, const Constant& whole, std::vector<int64_t> shape) {
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] < 1 || shape[d] > whole.shape[d]) {
      problem("constant '", name, "': expected 1 to ", whole.shape[d], " elements of dimension ", d, ", got ",
              shape[d]);
    }
  }
  if (shape == whole.shape) return whole;
  // Rows are what lies together in both: the last dimension.
  const auto row = static_cast<size_t>(shape.back() * element_bytes(whole.type));
  const auto whole_row = static_cast<size_t>(whole.shape.back() * element_bytes(whole.type));
  const auto rows = static_cast<size_t>(checked_elements(shape) / shape.back());
  std::vector<std::byte> bytes(rows * row);
  std::vector<int64_t> at(shape.size(), 0);
  for (size_t r = 0; r < rows; ++r) {
    int64_t from = 0;
    for (size_t d = 0; d + 1 < shape.size(); ++d) from = from * whole.shape[d] + at[d];
    std::memcpy(bytes.data() + r * row, whole.bytes.data() + static_cast<size_t>(from) * whole_row, row);
    for (size_t d = shape.size() - 1; d-- > 0;) {
      if (++at[d] < shape[d]) break;
      at[d] = 0;
    }
  }
  return {.type = whole.type, .shape = std::move(shape), .bytes = std::move(bytes)};
}

PlanSpecializer::PlanSpecializer(const Plan& plan)
    : plan_(plan), numbers_(std::make_unique<const Json>(numbers_to_json(plan))) {}
PlanSpecializer::~PlanSpecializer() = default;

Plan PlanSpecializer::at(std::span<const int64_t> sizes) const {
  const SymbolicNumbers& following = plan_.following;
  if (sizes.size() != following.free.size()) {
    fail("runtime.Plan.at", "expected a size for each of ", following.free.size(), " free dimensions, got ",
         sizes.size());
  }
  for (size_t i = 0; i < sizes.size(); ++i) following.free[i].check(sizes[i], "runtime.Plan.at");
  Json numbers = *numbers_;
  for (const SymbolicNumber& number : following.numbers)
    set_number(numbers, number, value_of(number.value, sizes, "'" + number.path + "'"));
  Plan plan = plan_from_numbers(numbers);
  plan.constants = plan_.constants;
  for (const auto& [name, polynomials] : following.corners) {
    std::vector<int64_t> shape;
    for (const Polynomial& polynomial : polynomials)
      shape.push_back(value_of(polynomial, sizes, "constant '" + name + "'"));
    Constant& constant = plan.constants.at(name);
    constant = corner_of(name, constant, std::move(shape));
  }
  return plan;
}

void verify_following(const Plan& plan) {
  const SymbolicNumbers& following = plan.following;
  if (following.free.empty()) {
    if (!following.numbers.empty() || !following.corners.empty())
      problem("expected free dimensions for what follows them, got none");
    return;
  }
  check_free(following);
  for (const SymbolicNumber& number : following.numbers)
    check_polynomial(number.value, following.free.size(), "'" + number.path + "'");
  for (const auto& [name, polynomials] : following.corners) {
    const auto constant = plan.constants.find(name);
    if (constant == plan.constants.end())
      problem("constant '", name, "' follows a free dimension and is not there");
    if (constant->second.shape.size() != polynomials.size())
      problem("constant '", name, "': expected ", constant->second.shape.size(), " sizes that follow, got ",
              polynomials.size());
    for (const Polynomial& polynomial : polynomials)
      check_polynomial(polynomial, following.free.size(), "constant '" + name + "'");
  }
  const bool known =
      std::ranges::find(following.free, plan.continued, &DynamicDimension::name) != following.free.end();
  if (!plan.continued.empty() && !known)
    problem("runs continue along '", plan.continued, "', which is no free dimension");
  const PlanSpecializer family(plan);
  const Plan top = family.at(largest(following));
  if (numbers_to_json(top) != numbers_to_json(plan))
    problem("expected the plan's own numbers at the largest sizes of its free dimensions, got others");
  try {
    verify_plan(family.at(smallest(following)));
  } catch (const PlanProblem& found) {
    // As a cut x[:, -3:], which has no form below its own size.
    std::string sizes;
    for (const DynamicDimension& free : following.free)
      sizes += (sizes.empty() ? "'" : ", '") + free.name + "' " + std::to_string(free.smallest());
    problem("expected a network that computes at the smallest sizes of its free dimensions, ", sizes,
            ", got ", found.text, "; give them larger smallest sizes, or fixed ones");
  }
}

}  // namespace ulp::runtime
