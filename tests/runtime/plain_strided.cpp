// move, pad, reduce, cumsum and matmul in plain loops.
#include <algorithm>
#include <cmath>

#include "plain_loops.h"
#include "plain_values.h"

namespace ulp::runtime::plain {
namespace {

/// The numbers of one result of a reduction, in logical order.
float reduced(kernels::ReduceKind kind, const std::vector<float>& x, float correction) {
  double sum = 0, product = 1, squares = 0, absolute = 0, ones = 0, differences = 0, exps = 0;
  const auto count = static_cast<double>(x.size());
  const auto top = std::ranges::max_element(x), low = std::ranges::min_element(x);
  for (const float v : x) {
    sum += v;
    product *= v;
    squares += double{v} * v;
    absolute += std::abs(v);
    ones += v != 0.0F;
    exps += std::exp(double{v} - *top);
  }
  for (const float v : x) differences += std::pow(v - sum / count, 2);
  differences /= std::max(0.0, count - double{correction});
  const double results[] = {sum,
                            sum / count,
                            *top,
                            *low,
                            product,
                            differences,
                            std::sqrt(differences),
                            absolute,
                            std::sqrt(squares),
                            std::max(std::abs(*top), std::abs(*low)),
                            static_cast<double>(top - x.begin()),
                            static_cast<double>(low - x.begin()),
                            ones > 0 ? 1.0 : 0.0,
                            ones == count ? 1.0 : 0.0,
                            *top + std::log(exps)};
  return static_cast<float>(results[static_cast<size_t>(kind)]);
}

}  // namespace

void move(const Step& step, const View& x, const View& y, int64_t batch) {
  const auto& attributes = step.get<MoveAttributes>();
  const int64_t in = element_count(x.info, 1) / first_of(x, 1),
                out = element_count(y.info, 1) / first_of(y, 1);
  for (int64_t i = 0; i < first_of(y, batch) * out; ++i) {
    int64_t from = attributes.offset, left = i % out;
    for (size_t d = attributes.strides.size(); d-- > 0; left /= attributes.strides[d].size) {
      from += left % attributes.strides[d].size * attributes.strides[d].stride;
    }
    y.set_steps(i, x.steps(i / out * in + from));
  }
}

void move_batch(const Step& step, const View& x, const View& y, int64_t batch) {
  const bool to_first = step.get<MoveBatchAttributes>().to == 0;
  const TensorInfo& apart = to_first ? x.info : y.info;
  int64_t before = 1, behind = 1;
  for (size_t d = 0; d < apart.shape.size(); ++d) {
    if (d < *batch_dimension(apart)) before *= apart.shape[d];
    if (d > *batch_dimension(apart)) behind *= apart.shape[d];
  }
  for (int64_t n = 0; n < batch; ++n) {
    for (int64_t i = 0; i < before; ++i) {
      for (int64_t k = 0; k < behind; ++k) {
        const int64_t first = (n * before + i) * behind + k, other = (i * batch + n) * behind + k;
        y.set_steps(to_first ? first : other, x.steps(to_first ? other : first));
      }
    }
  }
}

void pad(const Step& step, const View& x, const View& y, int64_t batch) {
  const auto& [sides, mode, value] = step.get<PadAttributes>();
  for (int64_t i = 0; i < element_count(y.info, batch); ++i) {
    int64_t from = 0, stride = 1, left = i;
    bool inside = true;
    for (size_t d = y.info.shape.size(); d-- > 1; left /= y.info.shape[d]) {
      const int64_t size = x.info.shape[d];
      int64_t at = left % y.info.shape[d] - sides[d - 1].before;
      if (at < 0 || at >= size) {
        inside = inside && mode != kernels::PadMode::constant;
        if (mode == kernels::PadMode::reflect) at = at < 0 ? -at : 2 * size - 2 - at;
        if (mode == kernels::PadMode::replicate) at = std::clamp<int64_t>(at, 0, size - 1);
        if (mode == kernels::PadMode::circular) at = (at + size) % size;
      }
      from += at * stride;
      stride *= size;
    }
    const int64_t to = logical(y, i);
    if (inside) {
      y.set_steps(to, x.steps(logical(x, left * stride + from)));
    } else {
      y.set(to, value);
    }
  }
}

void reduce(const Step& step, const View& x, const View& y, int64_t batch) {
  const auto& attributes = step.get<ReduceAttributes>();
  const int64_t count = element_count(y.info, batch);
  std::vector<std::vector<float>> groups(static_cast<size_t>(count));
  for (int64_t i = 0; i < element_count(x.info, batch); ++i) {
    int64_t to = 0, stride = 1, left = i;
    for (size_t d = x.info.shape.size(); d-- > 0;) {
      const int64_t size = d == 0 ? first_of(x, batch) : x.info.shape[d];
      const auto& dims = attributes.dims;
      const bool gone = std::ranges::find(dims, static_cast<int64_t>(d), &ReducedDim::dim) != dims.end();
      if (!gone) to += left % size * stride;
      if (!gone) stride *= size;
      left /= size;
    }
    groups[static_cast<size_t>(to)].push_back(x.get(logical(x, i)));
  }
  for (int64_t i = 0; i < count; ++i) {
    y.set(logical(y, i), reduced(attributes.kind, groups[static_cast<size_t>(i)], attributes.correction));
  }
}

void cumsum(const Step& step, const View& x, const View& y, int64_t batch) {
  const auto dim = static_cast<size_t>(step.get<CumulativeAttributes>().dim);
  int64_t inner = 1;
  for (size_t d = dim + 1; d < x.info.shape.size(); ++d) inner *= x.info.shape[d];
  for (int64_t i = 0; i < element_count(x.info, batch); ++i) {
    const bool product = step.get<CumulativeAttributes>().product;
    double made = product ? 1 : 0;
    for (int64_t r = i / inner % x.info.shape[dim]; r >= 0; --r) {
      const double next = x.get(i - r * inner);
      made = product ? made * next : made + next;
    }
    y.set(i, static_cast<float>(made));
  }
}

void matmul(const Plan& plan, const Step& step, const std::vector<View>& x, const View& y, int64_t batch) {
  const auto& own = step.get<MatmulAttributes>();
  const auto value = [&](const char* role, const View& view, int64_t item, int64_t at) {
    if (step.constants.contains(role)) return constant_at<float>(plan, step, role, at);
    return view.get(item * (element_count(view.info, 1) / first_of(view, 1)) + at);
  };
  for (int64_t i = 0; i < element_count(y.info, batch); ++i) {
    const int64_t column = i % own.columns, row = i / own.columns % own.rows;
    int64_t left = i / own.columns / own.rows, a = own.a.offset, b = own.b.offset;
    for (size_t d = own.loops.size(); d-- > 0; left /= own.loops[d].size) {
      a += left % own.loops[d].size * own.loops[d].a;
      b += left % own.loops[d].size * own.loops[d].b;
    }
    double sum = 0;
    for (int64_t k = 0; k < own.inner; ++k) {
      sum += double{value("a", x[0], left, a + row * own.a.row + k * own.a.column)} *
             value("b", x.back(), left, b + k * own.b.row + column * own.b.column);
    }
    y.set(i, static_cast<float>(sum));
  }
}

}  // namespace ulp::runtime::plain
