#include "ulp/quant/scheme/granularity.h"

#include <torch/types.h>

#include <charconv>
#include <functional>
#include <numeric>
#include <sstream>
#include <string_view>

#include "ulp/base/error.h"

namespace ulp::quant {
namespace {

using at::IntArrayRef;
using Shape = std::vector<int64_t>;

template <typename... Cases>
struct Overload : Cases... {
  using Cases::operator()...;
};
template <typename... Cases>
Overload(Cases...) -> Overload<Cases...>;  // clang before 17 deduces none for aggregates

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

int64_t product(IntArrayRef shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

Shape without_last(IntArrayRef shape, size_t count) {
  return shape.slice(0, shape.size() - count).vec();
}

// The counts and sizes of the blocks that cover [rows, columns] of the last two dimensions. A group is a
// block of one row.
struct Tiling {
  int64_t outer, rows, columns;        // of the tensor
  int64_t block_rows, block_columns;   // of one block
  int64_t blocks_down, blocks_across;  // how many

  Tiling(IntArrayRef shape, const PerBlock& block)
      : outer(product(shape.slice(0, shape.size() - 2))),
        rows(shape[shape.size() - 2]),
        columns(shape.back()),
        block_rows(block.rows),
        block_columns(block.columns),
        blocks_down(ceil_div(rows, block_rows)),
        blocks_across(ceil_div(columns, block_columns)) {}
  Shape split() const { return {outer, blocks_down, block_rows, blocks_across, block_columns}; }
  Shape in_rows() const { return {outer * blocks_down * blocks_across, block_rows * block_columns}; }
};

at::Tensor block_rows(const at::Tensor& x, const PerBlock& block) {
  const Tiling t(x.sizes(), block);
  const at::Tensor filled = at::constant_pad_nd(
      x.reshape({t.outer, t.rows, t.columns}),
      {0, t.blocks_across * t.block_columns - t.columns, 0, t.blocks_down * t.block_rows - t.rows});
  return filled.reshape(t.split()).permute({0, 1, 3, 2, 4}).reshape(t.in_rows());
}

at::Tensor from_block_rows(const at::Tensor& rows, const PerBlock& block, IntArrayRef shape) {
  const Tiling t(shape, block);
  return rows.reshape({t.outer, t.blocks_down, t.blocks_across, t.block_rows, t.block_columns})
      .permute({0, 1, 3, 2, 4})
      .reshape({t.outer, t.blocks_down * t.block_rows, t.blocks_across * t.block_columns})
      .slice(1, 0, t.rows)
      .slice(2, 0, t.columns)
      .reshape(shape);
}

// A shape of at least two dimensions, so that groups are blocks of one row.
Shape with_rows(IntArrayRef shape) {
  return shape.size() == 1 ? Shape{1, shape[0]} : shape.vec();
}

bool parse_number(std::string_view text, int64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

void validate(const Granularity& granularity) {
  std::visit(Overload{[](const PerTensor&) {}, [](const PerToken&) {},
                      [](const PerChannel& channel) {
                        if (channel.axis < 0)
                          fail("quant.Granularity", "expected a channel axis >= 0, got ", channel.axis);
                      },
                      [](const PerGroup& group) {
                        if (group.size < 1)
                          fail("quant.Granularity", "expected a group size >= 1, got ", group.size);
                      },
                      [](const PerBlock& block) {
                        if (block.rows < 1 || block.columns < 1) {
                          fail("quant.Granularity", "expected blocks of at least 1x1, got ", block.rows, 'x',
                               block.columns);
                        }
                      }},
             granularity);
}

std::string to_string(const Granularity& granularity) {
  std::ostringstream text;
  std::visit(
      Overload{[&](const PerTensor&) { text << "per tensor"; },
               [&](const PerChannel& channel) { text << "per channel " << channel.axis; },
               [&](const PerGroup& group) { text << "per group " << group.size; },
               [&](const PerToken&) { text << "per token"; },
               [&](const PerBlock& block) { text << "per block " << block.rows << 'x' << block.columns; }},
      granularity);
  return text.str();
}

Granularity parse_granularity(const std::string& text) {
  const size_t colon = std::min(text.find(':'), text.size());
  const std::string kind = text.substr(0, colon);
  const std::string_view size = std::string_view(text).substr(std::min(colon + 1, text.size()));
  const size_t cross = std::min(size.find('x'), size.size());
  int64_t first = 0, second = 0;
  Granularity result;
  if (text == "tensor") return PerTensor{};
  if (text == "token") return PerToken{};
  if (kind == "channel" && parse_number(size, first)) {
    result = PerChannel{first};
  } else if (kind == "group" && parse_number(size, first)) {
    result = PerGroup{first};
  } else if (kind == "block" && cross < size.size() && parse_number(size.substr(0, cross), first) &&
             parse_number(size.substr(cross + 1), second)) {
    result = PerBlock{first, second};
  } else {
    fail("quant.Granularity", "expected tensor, channel:AXIS, group:SIZE, token or block:ROWSxCOLUMNS, got '",
         text, "'");
  }
  validate(result);
  return result;
}

std::string mismatch(const Granularity& granularity, IntArrayRef shape) {
  const auto dimensions = static_cast<int64_t>(shape.size());
  int64_t needed = 0;
  if (const auto* channel = std::get_if<PerChannel>(&granularity)) needed = channel->axis + 1;
  if (std::holds_alternative<PerGroup>(granularity) || std::holds_alternative<PerToken>(granularity))
    needed = 1;
  if (std::holds_alternative<PerBlock>(granularity)) needed = 2;
  if (dimensions >= needed) return "";
  std::ostringstream text;
  text << "expected a tensor with ";
  if (std::holds_alternative<PerChannel>(granularity)) {
    text << "a dimension " << needed - 1;
  } else {
    text << "at least " << needed << (needed == 1 ? " dimension " : " dimensions ") << to_string(granularity);
  }
  text << ", got shape " << shape;
  return text.str();
}

Shape scale_shape(const Granularity& granularity, IntArrayRef shape) {
  validate(granularity);
  if (const std::string wrong = mismatch(granularity, shape); !wrong.empty())
    fail("quant.scale_shape", wrong);
  return std::visit(
      Overload{[](const PerTensor&) { return Shape{1}; },
               [&](const PerChannel& channel) { return Shape{shape[static_cast<size_t>(channel.axis)]}; },
               [&](const PerGroup& group) {
                 Shape result = shape.vec();
                 result.back() = ceil_div(result.back(), group.size);
                 return result;
               },
               [&](const PerToken&) { return without_last(shape, 1); },
               [&](const PerBlock& block) {
                 Shape result = shape.vec();
                 result.back() = ceil_div(result.back(), block.columns);
                 result[result.size() - 2] = ceil_div(result[result.size() - 2], block.rows);
                 return result;
               }},
      granularity);
}

at::Tensor to_rows(const at::Tensor& x, const Granularity& granularity) {
  const int64_t scales = product(scale_shape(granularity, x.sizes()));
  return std::visit(
      Overload{[&](const PerTensor&) {
                 return x.reshape({1, x.numel()});
               },
               [&](const PerChannel& channel) {
                 return x.movedim(channel.axis, 0).reshape({scales, scales == 0 ? 0 : x.numel() / scales});
               },
               [&](const PerGroup& group) {
                 return block_rows(x.reshape(with_rows(x.sizes())), {1, group.size});
               },
               [&](const PerToken&) {
                 return x.reshape({scales, x.size(-1)});
               },
               [&](const PerBlock& block) { return block_rows(x, block); }},
      granularity);
}

at::Tensor from_rows(const at::Tensor& rows, const Granularity& granularity, IntArrayRef shape) {
  return std::visit(Overload{[&](const PerTensor&) { return rows.reshape(shape); },
                             [&](const PerChannel& channel) {
                               Shape moved = shape.vec();
                               moved.erase(moved.begin() + channel.axis);
                               moved.insert(moved.begin(), shape[static_cast<size_t>(channel.axis)]);
                               return rows.reshape(moved).movedim(0, channel.axis);
                             },
                             [&](const PerGroup& group) {
                               return from_block_rows(rows, {1, group.size}, with_rows(shape)).reshape(shape);
                             },
                             [&](const PerToken&) { return rows.reshape(shape); },
                             [&](const PerBlock& block) { return from_block_rows(rows, block, shape); }},
                    granularity);
}

}  // namespace ulp::quant
