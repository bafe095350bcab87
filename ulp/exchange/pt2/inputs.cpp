#include "ulp/exchange/pt2/inputs.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "ulp/base/error.h"
#include "ulp/exchange/examples.h"
#include "ulp/exchange/pt2/where.h"

namespace ulp::exchange::pt2 {

namespace {

/// The symbol of the batch; empty where there is none. It is one dimension of an input, alone.
std::string batch_symbol(const std::vector<ProgramInput>& inputs) {
  const auto is_plain = [&](const std::string& symbol) {
    return std::ranges::all_of(inputs, [&](const ProgramInput& input) {
      const auto with = [&](const ProgramSize& size) { return size.symbol == symbol; };
      const auto found = std::ranges::find_if(input.sizes, with);
      return std::ranges::count_if(input.sizes, with) <= 1 &&
             (found == input.sizes.end() || found->factor == 1);
    });
  };
  for (const ProgramInput& input : inputs) {
    if (!input.sizes.empty() && !input.sizes[0].symbol.empty() && is_plain(input.sizes[0].symbol))
      return input.sizes[0].symbol;
  }
  return "";
}

class ProgramInputReader {
 public:
  ProgramInputReader(const Program& program, const Pt2ImportOptions& options)
      : program_(program),
        options_(options),
        batch_(batch_symbol(program.inputs)),
        examples_(kImportPt2Where, options.max_bytes) {}

  Inputs read() {
    Inputs made;
    made.options.batch_range = batch_range();
    for (size_t i = 0; i < program_.inputs.size(); ++i) {
      const ProgramInput& input = program_.inputs[i];
      made.options.batch_dims.push_back(-1);
      std::vector<int64_t> sizes;
      for (size_t d = 0; d < input.sizes.size(); ++d) sizes.push_back(size(made, i, d));
      made.examples.push_back(examples_.make(input.name, sizes, input.type));
      made.options.input_names.push_back(input.name);
    }
    return made;
  }

 private:
  /// The batch sizes of the export. As in PyTorch, a smallest one of 2 lets 1 and 0 pass: it stands for a
  /// dimension that was exported without bounds.
  BatchRange batch_range() const {
    constexpr int64_t kUnbounded = 2;
    BatchRange range;
    const auto own = program_.ranges.find(batch_);
    if (own == program_.ranges.end()) return range;
    if (own->second.min > kUnbounded) range.min = own->second.min;
    if (own->second.max >= 0) range.max = own->second.max;
    return range;
  }

  int64_t size(Inputs& made, size_t input, size_t dim) {
    const ProgramSize& given = program_.inputs[input].sizes[dim];
    if (given.symbol.empty()) return given.factor;
    if (given.symbol == batch_) {
      made.options.batch_dims[input] = static_cast<int64_t>(dim);
      return example_batch(made.options.batch_range, kImportPt2Where);
    }
    const auto [place, first] =
        names_.try_emplace(given.symbol, program_.inputs[input].name + '.' + std::to_string(dim));
    const SizeRange range = range_of(given, place->second);
    if (range.max == 0) return range.min;
    made.options.free.push_back(
        {input, static_cast<int64_t>(dim), place->second, range.max, range.min, range.multiple});
    return range.max / range.multiple * range.multiple;
  }

  static constexpr int64_t kMost = int64_t{1} << 24;
  /// A bound of the symbol as one of the size.
  static int64_t times(int64_t bound, const ProgramSize& size) {
    return std::clamp<int64_t>(bound, 1, kMost) * size.factor;
  }

  /// The largest size that the program was exported for; outside it other branches of the model might count.
  static int64_t most_of(const Program::Range& own, const ProgramSize& size) {
    const bool ends = own.max >= 0 && own.max <= kMost;
    return ends ? times(own.max, size) : std::numeric_limits<int64_t>::max();
  }

  /// A smallest size of 1 stands for that of the export.
  SizeRange asked_range(const ProgramSize& size, const std::string& name, SizeRange range) const {
    range.multiple = std::lcm(std::max<int64_t>(range.multiple, 1), size.factor);
    const auto own = program_.ranges.find(size.symbol);
    if (own == program_.ranges.end()) return range;
    const int64_t least = times(own->second.min, size), most = most_of(own->second, size);
    const int64_t smallest = range.min, largest = range.max == 0 ? range.min : range.max;
    if (largest > most)
      fail(kImportPt2Where, "expected sizes of '", name, "' of at most ", most, ", as it was exported, got ",
           largest);
    if (largest < least)
      fail(kImportPt2Where, "expected sizes of '", name, "' of at least ", least,
           ", as it was exported, got ", largest, " at most");
    if (smallest > 1 && smallest < least)
      fail(kImportPt2Where, "expected sizes of '", name, "' of at least ", least,
           ", as it was exported, got ", smallest);
    range.min = std::max(smallest, least);
    if (largest < range.min)
      fail(kImportPt2Where, "expected sizes of '", name, "' whose smallest is below the largest, got ",
           range.min, " and ", largest);
    return range;
  }

  SizeRange range_of(const ProgramSize& size, const std::string& name) const {
    if (const auto given = options_.sizes.find(name); given != options_.sizes.end())
      return asked_range(size, name, given->second);
    SizeRange range{.min = 1, .max = options_.longest, .multiple = size.factor};
    range.max *= size.factor;
    const auto found = program_.ranges.find(size.symbol);
    if (found == program_.ranges.end()) return range;
    range.min = std::max<int64_t>(range.min, times(found->second.min, size));
    if (const int64_t most = most_of(found->second, size); most < std::numeric_limits<int64_t>::max())
      range.max = most;
    range.max = std::max(range.max, range.min);
    return range;
  }

  const Program& program_;
  const Pt2ImportOptions& options_;
  std::string batch_;
  Examples examples_;
  std::map<std::string, std::string> names_;  // of symbols
};

}  // namespace

Inputs inputs_of(const Program& program, const Pt2ImportOptions& options) {
  return ProgramInputReader(program, options).read();
}

}  // namespace ulp::exchange::pt2
