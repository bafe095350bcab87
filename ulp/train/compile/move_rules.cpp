// Ops that permute, take a part or repeat: rules that end in one move of numbers.
#include <algorithm>
#include <utility>

#include "ulp/train/compile/builder.h"

namespace ulp::train::compiled {

namespace {

int64_t counted(Builder& builder, const graph::Node& node, int64_t dim, size_t dimensions) {
  const auto count = static_cast<int64_t>(dimensions);
  const int64_t found = dim < 0 ? dim + count : dim;
  if (found < 0 || found >= count) builder.refuse(node, "expected a dimension of ", count, ", got ", dim);
  return found;
}

/// The dimensions of the source in the order of the result.
std::vector<size_t> permutation_of(Builder& builder, const graph::Node& node, size_t dimensions) {
  std::vector<size_t> order(dimensions);
  for (size_t d = 0; d < dimensions; ++d) order[d] = d;
  if (node.target() == "aten::permute") {
    const auto dims = builder.literal(node, "dims").toIntVector();
    for (size_t d = 0; d < dimensions; ++d)
      order[d] = static_cast<size_t>(counted(builder, node, dims.at(d), dimensions));
    return order;
  }
  const bool two = node.target() == "aten::t";
  if (two && dimensions < 2) return order;
  const auto number = [&](const char* argument) {
    return counted(builder, node, static_cast<int64_t>(builder.number(node, argument)), dimensions);
  };
  const int64_t first = two ? 0 : number("dim0"), second = two ? 1 : number("dim1");
  std::swap(order[static_cast<size_t>(first)], order[static_cast<size_t>(second)]);
  return order;
}

/// Whether the order exchanges the middle two of four dimensions.
bool exchanges_middle(const std::vector<size_t>& order) {
  return order == std::vector<size_t>{0, 2, 1, 3};
}

void add_permutation(Builder& builder, const graph::Node& node) {
  const auto sizes = builder.sizes(node, "self");
  const std::vector<size_t> order = permutation_of(builder, node, sizes.size());
  const graph::Value& value = *node.output();
  for (const bool transposed : {false, true}) {
    const int heads = builder.merged(node, "self", transposed);
    if (heads >= 0 && exchanges_middle(order)) builder.set_merged(value, heads, !transposed);
  }
  builder.defer(node, value, [&builder, &node, &value, sizes, order] {
    Move move;
    for (const size_t d : order) move.dims.push_back(builder.move_dim(node, sizes, d));
    builder.set_moved(node, value, builder.matrix(node, "self"), std::move(move));
  });
}

/// A part of dimension `dim` from `start` on, every `step`-th; without the dimension if `drops`.
struct Part {
  int64_t dim = 0, start = 0, step = 1;
  bool drops = false;
};

/// Whether the source lies as images, and the part is one of their channels: columns of the pixels.
bool is_of_channels(Builder& builder, const graph::Node& node, const Part& part) {
  if (part.dim != 1 || part.step != 1 || part.drops || builder.sizes(node, "self").size() != 4) return false;
  return builder.image_of(builder.in_memory(node, "self")) != nullptr;
}

void set_channels(Builder& builder, const graph::Node& node, const graph::Value& value, int64_t from) {
  const int x = builder.pixels(node, "self");
  const int y = builder.make_as(node, value, x);
  const int64_t width = builder.at(y).width;
  builder.emit({.op = Op::copy, .out = y, .a = x, .from = from, .columns = width});
  builder.set_needs_gradient(y, builder.needs_gradient(x));
  builder.set(value, y);
  builder.on_backward(y, [&builder, x, from, width](int gradient) {
    builder.contribute(x, true, [&](int out, bool adds) {
      if (!adds) builder.emit({.op = Op::fill, .out = out});
      builder.emit({.op = Op::copy, .out = out, .a = gradient, .adds = true, .to = from, .columns = width});
    });
  });
}

void set_part(Builder& builder, const graph::Node& node, const graph::Value& value, const Part& part) {
  if (is_of_channels(builder, node, part)) return set_channels(builder, node, value, part.start);
  const auto sizes = builder.sizes(node, "self");
  Move move;
  for (size_t d = 0; d < sizes.size(); ++d) {
    Move::Dim dim = builder.move_dim(node, sizes, d);
    if (static_cast<int64_t>(d) != part.dim) {
      move.dims.push_back(dim);
      continue;
    }
    move.start = dim.step.times(part.start);
    move.start_column = dim.columns * part.start;
    if (part.drops) continue;
    if (!value.meta) builder.refuse(node, "expected a graph that knows its sizes, got none");
    const graph::SizeExpr& made = value.meta->sizes.at(d);
    if (!made.constant())
      builder.refuse(node, "expected a part of a fixed size, got one that follows the batch");
    dim.size = {0, 1, made.offset};
    dim.step = dim.step.times(part.step);
    dim.columns *= part.step;
    move.dims.push_back(dim);
  }
  builder.set_moved(node, value, builder.matrix(node, "self"), std::move(move));
}

/// A start that may count from the end.
int64_t start_of(Builder& builder, const graph::Node& node, std::string_view argument, int64_t size) {
  if (builder.literal(node, argument).isNone()) return 0;
  const auto start = static_cast<int64_t>(builder.number(node, argument));
  return start < 0 ? std::max<int64_t>(start + size, 0) : std::min(start, size);
}

/// The dimension that a part is of; its size is fixed.
int64_t fixed_dimension(Builder& builder, const graph::Node& node,
                        const std::vector<graph::SizeExpr>& sizes) {
  const int64_t d = counted(builder, node, static_cast<int64_t>(builder.number(node, "dim")), sizes.size());
  if (!sizes[static_cast<size_t>(d)].constant())
    builder.refuse(node, "expected a dimension of a fixed size, got one that follows the batch");
  return d;
}

void add_slice(Builder& builder, const graph::Node& node) {
  const auto sizes = builder.sizes(node, "self");
  const auto step = static_cast<int64_t>(builder.number(node, "step"));
  if (node.output()->meta && node.output()->meta->sizes == sizes && step == 1)
    return builder.set(*node.output(), builder.in_memory(node, "self"));  // x[:, ...]
  const int64_t d = fixed_dimension(builder, node, sizes);
  const int64_t start = start_of(builder, node, "start", sizes[static_cast<size_t>(d)].offset);
  builder.defer(node, *node.output(), [&builder, &node, d, start, step] {
    set_part(builder, node, *node.output(), {.dim = d, .start = start, .step = step});
  });
}

void add_narrow(Builder& builder, const graph::Node& node) {
  const auto sizes = builder.sizes(node, "self");
  const int64_t d = fixed_dimension(builder, node, sizes);
  const int64_t start = start_of(builder, node, "start", sizes[static_cast<size_t>(d)].offset);
  builder.defer(node, *node.output(), [&builder, &node, d, start] {
    set_part(builder, node, *node.output(), {.dim = d, .start = start});
  });
}

void add_select(Builder& builder, const graph::Node& node) {
  const auto sizes = builder.sizes(node, "self");
  const int64_t d = fixed_dimension(builder, node, sizes);
  const int64_t index = start_of(builder, node, "index", sizes[static_cast<size_t>(d)].offset);
  set_part(builder, node, *node.output(), {.dim = d, .start = index, .drops = true});
}

/// chunk, split and split_with_sizes: the results lie side by side.
void add_split(Builder& builder, const graph::Node& node) {
  const auto sizes = builder.sizes(node, "self");
  const int64_t d = fixed_dimension(builder, node, sizes);
  int64_t start = 0;
  for (const auto& output : node.outputs()) {
    const graph::Value& value = *output;
    builder.defer(node, value, [&builder, &node, &value, d, start] {
      set_part(builder, node, value, {.dim = d, .start = start});
    });
    if (value.meta) start += value.meta->sizes.at(static_cast<size_t>(d)).offset;
  }
}

/// Channels of images, group by group, become neighbours of those of the other groups.
void add_channel_shuffle(Builder& builder, const graph::Node& node) {
  const auto sizes = builder.sizes(node, "self");
  const auto groups = static_cast<int64_t>(builder.number(node, "groups"));
  if (sizes.size() < 3 || !sizes[1].constant() || groups < 1 || sizes[1].offset % groups != 0)
    builder.refuse(node, "expected channels that ", groups, " groups divide, got others");
  builder.check_move_dims(node, sizes.size() + 1);
  const int64_t each = sizes[1].offset / groups;
  Move move;
  for (size_t d = 0; d < sizes.size(); ++d) {
    Move::Dim dim = builder.move_dim(node, sizes, d);
    if (d != 1) {
      move.dims.push_back(dim);
      continue;
    }
    dim.size = {0, 1, each};
    move.dims.push_back(dim);
    dim.size = {0, 1, groups};
    dim.step = dim.step.times(each);
    move.dims.push_back(dim);
  }
  builder.set_moved(node, *node.output(), builder.matrix(node, "self"), std::move(move));
}

void add_expand(Builder& builder, const graph::Node& node) {
  builder.defer(node, *node.output(), [&builder, &node] {
    builder.set(*node.output(), builder.broadcast(node, "self", *node.output()));
  });
}

/// Tensors one after the other along a dimension that is not the last: each is moved back into its part of the result.
void add_concat_along(Builder& builder, const graph::Node& node, size_t dim) {
  const auto& sizes = node.output()->meta->sizes;
  const int y = builder.make(node, *node.output());
  struct Piece {
    int matrix = -1;
    Move move = {};
  };
  std::vector<Piece> pieces;
  int64_t start = 0;
  bool needs = false;
  for (const graph::Argument& item : node.arg("tensors").items) {
    Piece piece{builder.padded(builder.matrix(node, item))};
    const auto& own = item.value->meta->sizes;
    if (!own.at(dim).constant())
      builder.refuse(node,
                     "expected sizes along the dimension that are fixed, got one that follows the batch");
    for (size_t d = 0; d < sizes.size(); ++d) {
      piece.move.dims.push_back(builder.move_dim(node, sizes, d));
      if (d != dim) continue;
      piece.move.start = piece.move.dims.back().step.times(start);
      piece.move.dims.back().size = {0, 1, own[d].offset};
    }
    start += own[dim].offset;
    needs = needs || builder.needs_gradient(piece.matrix);
    builder.emit_move(Op::move_back, y, piece.matrix, piece.move, false);
    pieces.push_back(std::move(piece));
  }
  builder.set_needs_gradient(y, needs);
  builder.set(*node.output(), y);
  builder.on_backward(y, [&builder, pieces](int gradient) {
    for (const Piece& piece : pieces) {
      builder.contribute(piece.matrix, false, [&](int out, bool) {
        builder.emit_move(Op::move, out, gradient, piece.move, false);
      });
    }
  });
}

/// Whether the tensors are joined along the channels of images, one of which lies as pixels.
bool joins_channels(Builder& builder, const graph::Node& node, int64_t dim) {
  if (dim != 1 || node.output()->meta->sizes.size() != 4) return false;
  return std::ranges::any_of(node.arg("tensors").items,
                             [&](const graph::Argument& item) { return builder.lies_as_images(node, item); });
}

/// Columns side by side, or rows.
void add_concat(Builder& builder, const graph::Node& node) {
  if (!node.output()->meta) builder.refuse(node, "expected a graph that knows its sizes, got none");
  const auto& sizes = node.output()->meta->sizes;
  const int64_t d = fixed_dimension(builder, node, sizes);
  const bool channels = joins_channels(builder, node, d);
  if (!channels && d + 1 != static_cast<int64_t>(sizes.size()))
    return add_concat_along(builder, node, static_cast<size_t>(d));
  std::vector<int> parts;
  for (const graph::Argument& item : node.arg("tensors").items)
    parts.push_back(channels ? builder.pixels(node, item) : builder.padded(builder.matrix(node, item)));
  const int y = channels ? builder.make_pixels(node, sizes) : builder.make(node, *node.output());
  bool needs = false;
  int64_t column = 0;
  for (const int part : parts) {
    if (!(builder.at(part).rows == builder.at(y).rows))
      builder.refuse(node, "expected tensors with the same rows, got others");
    const int64_t width = builder.at(part).width;
    builder.emit({.op = Op::copy, .out = y, .a = part, .to = column, .columns = width});
    column += width;
    needs = needs || builder.needs_gradient(part);
  }
  builder.set_needs_gradient(y, needs);
  builder.set(*node.output(), y);
  builder.on_backward(y, [&builder, parts](int gradient) {
    int64_t from = 0;
    for (const int part : parts) {
      const int64_t width = builder.at(part).width;
      builder.contribute(part, true, [&](int out, bool adds) {
        builder.emit(
            {.op = Op::copy, .out = out, .a = gradient, .adds = adds, .from = from, .columns = width});
      });
      from += width;
    }
  });
}

}  // namespace

void Builder::check_move_dims(const graph::Node& node, size_t dimensions) const {
  if (dimensions > kMostMoveDims)
    refuse(node, "expected at most ", kMostMoveDims, " dimensions, got ", dimensions);
}

Move::Dim Builder::move_dim(const graph::Node& node, const std::vector<graph::SizeExpr>& source,
                            size_t dim) const {
  check_move_dims(node, source.size());
  const bool whole = !source.back().constant();
  Move::Dim made;
  made.size = rows_of(node, {source[dim]}, 1);
  if (!whole && dim + 1 == source.size()) {
    made.step = {0, 1, 0};
    made.columns = 1;
    return made;
  }
  const auto first = source.begin() + static_cast<std::ptrdiff_t>(dim) + 1;
  const auto last = whole ? source.end() : source.end() - 1;
  const std::vector<graph::SizeExpr> behind(first, last);
  made.step = rows_of(node, behind, behind.size());
  return made;
}

void Builder::emit_move(Op op, int out, int a, Move move, bool adds) {
  built_.plan.moves.push_back(std::move(move));
  emit(
      {.op = op, .out = out, .a = a, .adds = adds, .detail = static_cast<int>(built_.plan.moves.size()) - 1});
}

void Builder::set_moved(const graph::Node& node, const graph::Value& value, int source, Move move) {
  const int like = make_of_any_type(node, value);
  const PlanMatrix sizes = at(like);
  set(value, moved(source, std::move(move), sizes.rows, sizes.width));
}

int Builder::moved(int source, Move move, RowCount rows, int64_t width) {
  const int made = make(rows, width);
  set_needs_gradient(made, needs_gradient(source));
  emit_move(Op::move, made, source, move, false);
  const PlanMatrix taken = at(made), whole = at(source);
  const bool repeats = move.repeats();
  const bool all = !repeats && taken.rows.times(taken.width) == whole.rows.times(whole.width);
  on_backward(made, [this, source, move, all, repeats](int gradient) {
    contribute(source, true, [&](int out, bool adds) {
      if (!adds && !all) emit({.op = Op::fill, .out = out});
      emit_move(Op::move_back, out, gradient, move, adds || repeats);
    });
  });
  return made;
}

int Builder::reshaped(int matrix, RowCount rows, int64_t width) {
  if (at(matrix).rows == rows && at(matrix).width == width) return matrix;
  const int made = make(rows, width);
  set_needs_gradient(made, needs_gradient(matrix));
  emit({.op = Op::reshape, .out = made, .a = matrix});
  on_backward(made, [this, matrix](int gradient) {
    contribute(matrix, false, [&](int out, bool) { emit({.op = Op::reshape, .out = out, .a = gradient}); });
  });
  return made;
}

/// Broadcasting as LibTorch has it: dimensions of one, and those that are missing in front, are repeated.
int Builder::repeated(const graph::Node& node, int x, const std::vector<graph::SizeExpr>& own, int made,
                      const std::vector<graph::SizeExpr>& wanted) {
  check_move_dims(node, wanted.size());
  const size_t missing = wanted.size() - own.size();
  const graph::SizeExpr one{.offset = 1};
  Move move;
  for (size_t d = 0; d < wanted.size(); ++d) {
    const bool repeats = d < missing || (own[d - missing] == one && !(wanted[d] == one));
    move.dims.push_back(repeats ? Move::Dim{rows_of(node, {wanted[d]}, 1), {0, 1, 0}, 0}
                                : move_dim(node, own, d - missing));
  }
  emit_move(Op::move, made, x, move, false);
  on_backward(made, [this, x, move](int gradient) {
    contribute(x, true, [&](int out, bool adds) {
      if (!adds) emit({.op = Op::fill, .out = out});
      emit_move(Op::move_back, out, gradient, move, true);
    });
  });
  return made;
}

std::vector<OpRow> move_rules() {
  return {{"aten::transpose.int", add_permutation},
          {"aten::permute", add_permutation},
          {"aten::t", add_permutation},
          {"aten::expand", add_expand},
          {"aten::channel_shuffle", add_channel_shuffle},
          {"aten::cat", add_concat},
          {"aten::slice.Tensor", add_slice},
          {"aten::narrow", add_narrow},
          {"aten::select.int", add_select},
          {"aten::chunk", add_split},
          {"aten::split.Tensor", add_split},
          {"aten::split_with_sizes", add_split}};
}

}  // namespace ulp::train::compiled
