// Pooling of images.
#include "ulp/train/compile/builder.h"

namespace ulp::train::compiled {

namespace {

using kernels::StepPool;

/// Both sides of a pool; `y` is made.
struct PoolOperands {
  int x = -1, y = -1;
};
PoolOperands pool_operands(Builder& builder, const graph::Node& node, StepPool& pool) {
  const int x = builder.pixels(node, "self");
  const int y = builder.make_as(node, *node.output(), x);
  const ImageSize from = *builder.image_of(x), to = *builder.image_of(y);
  pool.in_height = from.height;
  pool.in_width = from.width;
  pool.out_height = to.height;
  pool.out_width = to.width;
  pool.channels = builder.at(x).width;
  builder.set_needs_gradient(y, builder.needs_gradient(x));
  builder.set(*node.output(), y);
  return {x, y};
}

/// Kernel, stride and padding; without a stride it is the kernel.
void read_windows(Builder& builder, const graph::Node& node, StepPool& pool) {
  const auto kernel = two_numbers(builder, node, "kernel_size");
  const bool strided = !builder.literal(node, "stride").toIntVector().empty();
  const auto stride = strided ? two_numbers(builder, node, "stride") : kernel;
  const auto pad = two_numbers(builder, node, "padding");
  pool.kernel_height = kernel[0];
  pool.kernel_width = kernel[1];
  pool.stride_height = stride[0];
  pool.stride_width = stride[1];
  pool.pad_height = pad[0];
  pool.pad_width = pad[1];
}

void add_max_pool(Builder& builder, const graph::Node& node) {
  StepPool pool;
  read_windows(builder, node, pool);
  const auto dilation = two_numbers(builder, node, "dilation");
  pool.dilation_height = dilation[0];
  pool.dilation_width = dilation[1];
  constexpr int64_t kWholeFloats = 1 << 24;
  if (pool.kernel_height * pool.kernel_width > kWholeFloats)
    builder.refuse(node, "expected windows of at most 2^24 pixels, got larger ones");
  const auto [x, y] = pool_operands(builder, node, pool);
  const int shape = builder.add_pool(pool), places = builder.make_like(y);
  builder.emit({.op = Op::max_pool, .out = y, .a = x, .d = places, .shape = shape});
  builder.on_backward(y, [&builder, x = x, places, shape](int gradient) {
    builder.contribute(x, false, [&](int out, bool) {
      builder.emit({.op = Op::max_pool_gradient, .out = out, .a = gradient, .b = places, .shape = shape});
    });
  });
}

void add_average(Builder& builder, const graph::Node& node, StepPool& pool) {
  const auto [x, y] = pool_operands(builder, node, pool);
  const int shape = builder.add_pool(pool);
  builder.emit({.op = Op::average_pool, .out = y, .a = x, .shape = shape});
  builder.on_backward(y, [&builder, x = x, shape](int gradient) {
    builder.contribute(x, false, [&](int out, bool) {
      builder.emit({.op = Op::average_pool_gradient, .out = out, .a = gradient, .shape = shape});
    });
  });
}

void add_average_pool(Builder& builder, const graph::Node& node) {
  StepPool pool;
  read_windows(builder, node, pool);
  pool.count_include_pad = builder.flag(node, "count_include_pad");
  if (!builder.literal(node, "divisor_override").isNone()) {
    pool.divisor = static_cast<int64_t>(builder.number(node, "divisor_override"));
    if (pool.divisor == 0) builder.refuse(node, "expected a divisor that is not 0, got 0");
  }
  add_average(builder, node, pool);
}

void add_adaptive_average_pool(Builder& builder, const graph::Node& node) {
  StepPool pool;
  pool.adaptive = true;
  add_average(builder, node, pool);
}

/// Each pixel several times: the gradient of a sum over windows.
void add_nearest(Builder& builder, const graph::Node& node, std::string_view input,
                 const std::vector<double>& factors) {
  const int x = builder.pixels(node, input);
  const int y = builder.make_as(node, *node.output(), x);
  const ImageSize small = *builder.image_of(x), large = *builder.image_of(y);
  const int64_t down = large.height / small.height, across = large.width / small.width;
  const bool whole =
      down * small.height == large.height && across * small.width == large.width && down > 0 && across > 0;
  const bool as_said = factors.empty() || (factors.front() == static_cast<double>(down) &&
                                           factors.back() == static_cast<double>(across));
  if (!whole || !as_said)
    builder.refuse(node, "expected sizes that are whole multiples, got ", small.height, " by ", small.width,
                   " to ", large.height, " by ", large.width);
  StepPool pool{.in_height = large.height,
                .in_width = large.width,
                .out_height = small.height,
                .out_width = small.width,
                .channels = builder.at(x).width,
                .kernel_height = down,
                .kernel_width = across,
                .stride_height = down,
                .stride_width = across};
  pool.divisor = 1;
  const int shape = builder.add_pool(pool);
  builder.set_needs_gradient(y, builder.needs_gradient(x));
  builder.set(*node.output(), y);
  builder.emit({.op = Op::average_pool_gradient, .out = y, .a = x, .shape = shape});
  builder.on_backward(y, [&builder, x, shape](int gradient) {
    builder.contribute(x, false, [&](int out, bool) {
      builder.emit({.op = Op::average_pool, .out = out, .a = gradient, .shape = shape});
    });
  });
}

void add_nearest_of_list(Builder& builder, const graph::Node& node) {
  const c10::IValue& given = builder.literal(node, "scale_factors");
  add_nearest(builder, node, "input", given.isNone() ? std::vector<double>{} : given.toDoubleVector());
}

void add_nearest_of_numbers(Builder& builder, const graph::Node& node) {
  std::vector<double> factors;
  for (const char* name : {"scales_h", "scales_w"}) {
    if (!builder.literal(node, name).isNone()) factors.push_back(builder.number(node, name));
  }
  if (factors.size() == 1) builder.refuse(node, "expected no factor or two, got one");
  add_nearest(builder, node, "self", factors);
}

}  // namespace

std::vector<OpRow> pool_rules() {
  return {{"aten::max_pool2d", add_max_pool},
          {"aten::avg_pool2d", add_average_pool},
          {"aten::upsample_nearest2d.vec", add_nearest_of_list},
          {"aten::upsample_nearest2d", add_nearest_of_numbers},
          {"aten::adaptive_avg_pool2d", add_adaptive_average_pool}};
}

}  // namespace ulp::train::compiled
