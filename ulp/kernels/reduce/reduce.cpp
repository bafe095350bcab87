#include "ulp/kernels/reduce/reduce.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "ulp/base/error.h"
#include "ulp/kernels/elementwise/elementwise.h"
#include "ulp/kernels/isa/dispatch.h"
#include "ulp/kernels/reduce/reduce_ops.h"

namespace ulp::kernels {
namespace {

constexpr Variant<const ReduceOps*> kTables[] = {{Isa::avx512, ULP_ON_X86(&kReduceOpsAvx512)},
                                                 {Isa::avx2, ULP_ON_X86(&kReduceOpsAvx2)},
                                                 {Isa::portable, &kReduceOpsPortable}};

/// Numbers that are widened at a time where the source is no f32.
constexpr int64_t kScratch = 4096;
constexpr int64_t kTask = 16384;

bool is_argument(ReduceKind kind) {
  return kind == ReduceKind::argmax || kind == ReduceKind::argmin;
}
bool is_extreme(ReduceKind kind) {
  return kind == ReduceKind::max || kind == ReduceKind::min || kind == ReduceKind::norm_inf;
}
bool takes_largest(ReduceKind kind) {
  return kind != ReduceKind::min && kind != ReduceKind::argmin;
}
bool has_center(ReduceKind kind) {
  return kind == ReduceKind::var || kind == ReduceKind::std;
}

/// What the last pass adds up.
Term term_of(ReduceKind kind) {
  switch (kind) {
    case ReduceKind::prod:
      return Term::product;
    case ReduceKind::var:
    case ReduceKind::std:
      return Term::difference;
    case ReduceKind::norm1:
      return Term::absolute;
    case ReduceKind::norm2:
      return Term::square;
    case ReduceKind::any:
    case ReduceKind::all:
      return Term::nonzero;
    case ReduceKind::logsumexp:
      return Term::exp;
    default:
      return Term::plain;
  }
}

bool wins(bool largest, float x, float best) {
  if (std::isnan(best)) return false;
  return std::isnan(x) || (largest ? x > best : x < best);
}

}  // namespace

/// Double sums and what they are taken around.
struct Reduce::Block {
  double sums[kReduceColumns], centers[kReduceColumns];
  float best[kReduceColumns];
};

Reduce::Reduce(ReduceKind kind, DataType type, Affine q, const std::vector<ReduceDimension>& dimensions,
               float correction, Isa isa)
    : kind_(kind),
      type_(type),
      q_(q),
      correction_(correction),
      ops_(first_admitted(kTables, isa)),
      isa_(isa) {
  if (type != DataType::f32 && type != DataType::bf16 && type != DataType::u8) {
    fail("kernels.Reduce", "expected elements of f32, bf16 or u8, got ", to_string(type));
  }
  if (is_argument(kind) && std::ranges::count(dimensions, true, &ReduceDimension::reduced) != 1) {
    fail("kernels.Reduce", "expected one dimension for the place of an extreme");
  }
  std::vector<ReduceDimension> joined;
  for (const ReduceDimension& d : dimensions) {
    item_ *= d.size;
    if (d.reduced) count_ *= d.size;
    if (d.size == 1) continue;
    if (!joined.empty() && joined.back().reduced == d.reduced) {
      joined.back().size *= d.size;
    } else {
      joined.push_back(d);
    }
  }
  if (joined.empty()) joined.push_back({1, true});
  rows_ = joined.back().reduced;
  width_ = joined.back().size;
  joined.pop_back();
  int64_t stride = width_;
  for (size_t d = joined.size(); d-- > 0; stride *= joined[d].size) {
    std::vector<Loop>& loops = joined[d].reduced ? reduced_ : kept_;
    loops.insert(loops.begin(), {joined[d].size, stride});
    if (!joined[d].reduced) outer_ *= joined[d].size;
  }
}

size_t Reduce::workspace_bytes(int workers) const {
  return type_ == DataType::f32 ? 0 : static_cast<size_t>(workers) * kScratch * sizeof(float);
}

/// Up to kScratch numbers side by side.
const float* Reduce::floats(const void* x, int64_t from, int64_t count, float* scratch) const {
  if (type_ == DataType::f32) return static_cast<const float*>(x) + from;
  const SerialParallel serial;
  if (type_ == DataType::u8) {
    dequantize(static_cast<const uint8_t*>(x) + from, scratch, count, q_, isa_, serial);
  } else {
    convert_bf16_to_f32(static_cast<const uint16_t*>(x) + from, scratch, count, isa_, serial);
  }
  return scratch;
}

/// Calls f(numbers, count) for all runs of one result where the innermost dimension is reduced.
template <typename F>
void Reduce::each_run(const void* x, int64_t from, float* scratch, F f) const {
  const int64_t most = type_ == DataType::f32 ? width_ : kScratch;
  for (int64_t i = 0; i < count_ / width_; ++i) {
    int64_t at = from, left = i;
    for (size_t d = reduced_.size(); d-- > 0; left /= reduced_[d].size) {
      at += left % reduced_[d].size * reduced_[d].stride;
    }
    for (int64_t begin = 0; begin < width_; begin += most) {
      const int64_t n = std::min(most, width_ - begin);
      f(floats(x, at + begin, n, scratch), n);
    }
  }
}

/// Calls f(numbers, rows, stride) for all rows of n results side by side.
template <typename F>
void Reduce::each_rows(const void* x, int64_t from, int64_t n, float* scratch, F f) const {
  const bool whole = type_ == DataType::f32 && !reduced_.empty();
  const int64_t rows = whole ? reduced_.back().size : 1;
  for (int64_t i = 0; i < count_ / rows; ++i) {
    int64_t at = from, left = i;
    for (size_t d = reduced_.size() - (whole ? 1 : 0); d-- > 0; left /= reduced_[d].size) {
      at += left % reduced_[d].size * reduced_[d].stride;
    }
    f(floats(x, at, n, scratch), rows, whole ? reduced_.back().stride : 0);
  }
}

float Reduce::finished(double value, double largest) const {
  const auto count = static_cast<double>(count_);
  const double divisor = std::max(0.0, count - static_cast<double>(correction_));
  switch (kind_) {
    case ReduceKind::mean:
      return static_cast<float>(value / count);
    case ReduceKind::var:
      return static_cast<float>(value / divisor);
    case ReduceKind::std:
      return static_cast<float>(std::sqrt(value / divisor));
    case ReduceKind::norm2:
      return static_cast<float>(std::sqrt(value));
    case ReduceKind::any:
      return value > 0 ? 1.0F : 0.0F;
    case ReduceKind::all:
      return value == count ? 1.0F : 0.0F;
    case ReduceKind::logsumexp:
      return static_cast<float>(std::isfinite(largest) ? largest + std::log(value) : largest);
    default:
      return static_cast<float>(value);
  }
}

/// The result of the runs that begin at `from`.
float Reduce::one(const void* x, int64_t from, float* scratch) const {
  const auto extreme = [&] {
    float best = 0;
    bool first = true;
    each_run(x, from, scratch, [&](const float* run, int64_t n) {
      const float v = ops_->extreme_row(takes_largest(kind_), kind_ == ReduceKind::norm_inf, run, n);
      if (first || wins(takes_largest(kind_), v, best)) best = v;
      first = false;
    });
    return best;
  };
  const auto sum = [&](Term term, double center) {
    double total = term == Term::product ? 1 : 0;
    each_run(x, from, scratch, [&](const float* run, int64_t n) {
      const double part = ops_->sum_row(term, run, n, center);
      total = term == Term::product ? total * part : total + part;
    });
    return total;
  };
  if (is_extreme(kind_)) return extreme();
  double center = 0, largest = 0;
  if (has_center(kind_)) center = sum(Term::plain, 0) / static_cast<double>(count_);
  if (kind_ == ReduceKind::logsumexp) {
    largest = extreme();
    center = std::isfinite(largest) ? largest : 0;
  }
  return finished(sum(term_of(kind_), center), largest);
}

/// The first place of the extreme.
float Reduce::argument(const void* x, int64_t from, float* scratch) const {
  float best = 0;
  int64_t at = 0, place = 0;
  each_run(x, from, scratch, [&](const float* run, int64_t n) {
    const float v = ops_->extreme_row(takes_largest(kind_), false, run, n);
    if (at == 0 || wins(takes_largest(kind_), v, best)) {
      best = v;
      int64_t i = 0;
      while (std::isnan(v) ? !std::isnan(run[i]) : run[i] != v) ++i;
      place = at + i;
    }
    at += n;
  });
  return static_cast<float>(place);
}

/// n results side by side, at most kReduceColumns.
void Reduce::block(const void* x, int64_t from, int64_t n, float* y, float* scratch) const {
  Block b;
  const auto extreme = [&](float* best) {
    const float first = takes_largest(kind_) ? -std::numeric_limits<float>::infinity()
                                             : std::numeric_limits<float>::infinity();
    std::fill(best, best + n, kind_ == ReduceKind::norm_inf ? 0.0F : first);
    each_rows(x, from, n, scratch, [&](const float* row, int64_t rows, int64_t stride) {
      ops_->extreme_columns(takes_largest(kind_), kind_ == ReduceKind::norm_inf, row, rows, stride, n, best);
    });
  };
  const auto sum = [&](Term term, const double* centers) {
    std::fill(b.sums, b.sums + n, term == Term::product ? 1.0 : 0.0);
    each_rows(x, from, n, scratch, [&](const float* row, int64_t rows, int64_t stride) {
      ops_->sum_columns(term, row, rows, stride, n, centers, b.sums);
    });
  };
  if (is_extreme(kind_)) return extreme(y);
  std::fill(b.centers, b.centers + n, 0.0);
  if (has_center(kind_)) {
    sum(Term::plain, nullptr);
    for (int64_t c = 0; c < n; ++c) b.centers[c] = b.sums[c] / static_cast<double>(count_);
  }
  if (kind_ == ReduceKind::logsumexp) {
    extreme(b.best);
    for (int64_t c = 0; c < n; ++c) b.centers[c] = std::isfinite(b.best[c]) ? b.best[c] : 0.0F;
  } else {
    std::fill(b.best, b.best + n, 0.0F);
  }
  sum(term_of(kind_), b.centers);
  for (int64_t c = 0; c < n; ++c) y[c] = finished(b.sums[c], static_cast<double>(b.best[c]));
}

void Reduce::block_arguments(const void* x, int64_t from, int64_t n, float* y, float* scratch) const {
  float best[kReduceColumns];
  int64_t at = 0;
  each_rows(x, from, n, scratch, [&](const float* row, int64_t rows, int64_t stride) {
    for (int64_t r = 0; r < rows; ++r, ++at, row += stride) {
      for (int64_t c = 0; c < n; ++c) {
        if (at > 0 && !wins(takes_largest(kind_), row[c], best[c])) continue;
        best[c] = row[c];
        y[c] = static_cast<float>(at);
      }
    }
  });
}

void Reduce::run(const void* x, float* y, int64_t batch, void* workspace, const Parallel& parallel) const {
  // Units are single results, or blocks of them side by side.
  const int64_t blocks = rows_ ? 1 : (width_ + kReduceColumns - 1) / kReduceColumns;
  const int64_t units = batch * outer_ * blocks;
  const int64_t work = rows_ ? count_ : count_ * std::min(width_, kReduceColumns);
  const int64_t each = std::max<int64_t>(1, kTask / work);
  parallel.run((units + each - 1) / each, [&](int64_t task, int worker) {
    float* scratch = static_cast<float*>(workspace) + (type_ == DataType::f32 ? 0 : worker * kScratch);
    for (int64_t u = task * each; u < std::min(units, (task + 1) * each); ++u) {
      const int64_t result = u / blocks;
      int64_t from = result / outer_ * item_, left = result % outer_;
      for (size_t d = kept_.size(); d-- > 0; left /= kept_[d].size) {
        from += left % kept_[d].size * kept_[d].stride;
      }
      if (rows_) {
        y[u] = is_argument(kind_) ? argument(x, from, scratch) : one(x, from, scratch);
        continue;
      }
      const int64_t begin = u % blocks * kReduceColumns, n = std::min(kReduceColumns, width_ - begin);
      float* to = y + result * width_ + begin;
      is_argument(kind_) ? block_arguments(x, from + begin, n, to, scratch)
                         : block(x, from + begin, n, to, scratch);
    }
  });
}

namespace {

/// Joins the rows of each matrix one after the other, from `first` on.
template <typename Join>
void cumulate(const float* x, float* y, int64_t outer, int64_t size, int64_t inner, const Parallel& parallel,
              double first, Join join) {
  constexpr int64_t kColumns = 64;
  const int64_t blocks = (inner + kColumns - 1) / kColumns;
  const int64_t each = std::max<int64_t>(1, kTask / (size * std::min(inner, kColumns)));
  const int64_t units = outer * blocks;
  parallel.run((units + each - 1) / each, [&](int64_t task, int) {
    for (int64_t u = task * each; u < std::min(units, (task + 1) * each); ++u) {
      const int64_t begin = u % blocks * kColumns, n = std::min(kColumns, inner - begin);
      int64_t at = u / blocks * size * inner + begin;
      double sums[kColumns];
      std::fill_n(sums, kColumns, first);
      for (int64_t r = 0; r < size; ++r, at += inner) {
        for (int64_t c = 0; c < n; ++c) {
          sums[c] = join(sums[c], static_cast<double>(x[at + c]));
          y[at + c] = static_cast<float>(sums[c]);
        }
      }
    }
  });
}

}  // namespace

void cumulative_sum(const float* x, float* y, int64_t outer, int64_t size, int64_t inner,
                    const Parallel& parallel) {
  cumulate(x, y, outer, size, inner, parallel, 0, std::plus<double>());
}

void cumulative_product(const float* x, float* y, int64_t outer, int64_t size, int64_t inner,
                        const Parallel& parallel) {
  cumulate(x, y, outer, size, inner, parallel, 1, std::multiplies<double>());
}

void log_softmax(const float* x, float* y, int64_t rows, int64_t columns, Isa isa, const Parallel& parallel) {
  const ReduceOps& ops = *first_admitted(kTables, isa);
  const int64_t each = std::max<int64_t>(1, kTask / columns);
  parallel.run((rows + each - 1) / each, [&](int64_t task, int) {
    for (int64_t r = task * each; r < std::min(rows, (task + 1) * each); ++r) {
      const float* from = x + r * columns;
      const float largest = ops.extreme_row(true, false, from, columns);
      const auto center = static_cast<double>(largest);
      const double shift = center + std::log(ops.sum_row(Term::exp, from, columns, center));
      for (int64_t i = 0; i < columns; ++i) {
        y[r * columns + i] = static_cast<float>(static_cast<double>(from[i]) - shift);
      }
    }
  });
}

}  // namespace ulp::kernels
