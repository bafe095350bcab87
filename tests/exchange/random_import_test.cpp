// Drawn ONNX files whose sizes and indices decide the result: Squeeze, indices below zero that come as an
// input, norms of rows of zeros. Expected results come from LibTorch.
#include <torch/torch.h>

#include "onnx_case.h"
#include "ulp/lower/evaluate.h"
#include "ulp/lower/lower.h"
#include "ulp/runtime/engine/engine.h"

namespace ulp::test {

namespace {

using DrawnSizes = std::vector<int64_t>;

DrawnSizes drawn_sizes(Drawn& drawn, int64_t least_rank, int64_t most_rank, int64_t least, int64_t most) {
  DrawnSizes sizes(static_cast<size_t>(drawn.whole(least_rank, most_rank)));
  for (int64_t& size : sizes) size = drawn.whole(least, most);
  return sizes;
}

/// Whole numbers from `low` to `high`.
at::Tensor drawn_whole(Drawn& drawn, const DrawnSizes& sizes, int64_t low, int64_t high) {
  const at::Tensor made = torch::empty(sizes, torch::kLong);
  for (int64_t i = 0; i < made.numel(); ++i) made.mutable_data_ptr<int64_t>()[i] = drawn.whole(low, high);
  return made;
}

/// An axis of `rank` dimensions, counted from either end, and the same from the front.
std::pair<int64_t, int64_t> drawn_axis(Drawn& drawn, int64_t rank) {
  const int64_t axis = drawn.whole(-rank, rank - 1);
  return {axis, axis < 0 ? axis + rank : axis};
}

/// Indices from -n on, and where they are from the front.
std::pair<at::Tensor, at::Tensor> drawn_indices(Drawn& drawn, const DrawnSizes& sizes, int64_t n) {
  const at::Tensor made = drawn_whole(drawn, sizes, -n, n - 1);
  return {made, at::where(made < 0, made + n, made)};
}

void check_drawn_squeeze(Drawn& drawn) {
  const DrawnSizes sizes = [&] {
    DrawnSizes made(static_cast<size_t>(drawn.whole(1, 6)));
    for (int64_t& size : made) size = drawn.one_of<int64_t>({1, 1, 2, 3});
    return made;
  }();
  const auto rank = static_cast<int64_t>(sizes.size());
  const int64_t opset = drawn.one_of<int64_t>({6, 11, 13, 18, 21});
  DrawnSizes axes, from_front;
  for (int64_t d = 0; d < rank; ++d) {
    if (sizes[static_cast<size_t>(d)] != 1 || drawn.whole(0, 1) == 0) continue;
    axes.push_back(opset >= 11 && drawn.whole(0, 1) == 0 ? d - rank : d);
    from_front.push_back(d);
  }
  const bool given = !axes.empty() && drawn.whole(0, 2) > 0;
  OnnxCase file;
  file.input("x", sizes);
  if (given && opset >= 13) {
    file.tensor("axes", torch::tensor(axes)).node("Squeeze", {"x", "axes"}, {"y"});
  } else if (given) {
    file.node("Squeeze", {"x"}, {"y"}, {{"axes", axes}});
  } else {
    file.node("Squeeze", {"x"}, {"y"});
  }
  const at::Tensor x = torch::randn(sizes), right = given ? x.squeeze(from_front) : x.squeeze();
  EXPECT_TRUE(torch::equal(file.output("y").run({x}, opset), right))
      << x.sizes() << " by " << at::IntArrayRef(axes) << (given ? "" : ", not given") << ", opset " << opset;
}

void check_drawn_gather(Drawn& drawn) {
  const DrawnSizes sizes = drawn_sizes(drawn, 1, 4, 1, 5), places = drawn_sizes(drawn, 0, 2, 1, 4);
  const auto [axis, front] = drawn_axis(drawn, static_cast<int64_t>(sizes.size()));
  const auto [ids, right_ids] = drawn_indices(drawn, places, sizes[static_cast<size_t>(front)]);
  const bool narrow = drawn.whole(0, 1) == 0, stored = drawn.whole(0, 1) == 0;
  const at::Tensor x = torch::randn(sizes), given = narrow ? ids.to(torch::kInt) : ids;
  OnnxCase file;
  if (stored)
    file.tensor("x", x);
  else
    file.input("x", sizes);
  file.input("i", places, given.scalar_type())
      .node("Gather", {"x", "i"}, {"y"}, {{"axis", axis}})
      .output("y");
  DrawnSizes shape(sizes.begin(), sizes.begin() + front);
  shape.insert(shape.end(), places.begin(), places.end());
  shape.insert(shape.end(), sizes.begin() + front + 1, sizes.end());
  EXPECT_TRUE(torch::equal(file.run(stored ? std::vector{given} : std::vector{x, given}),
                           x.index_select(front, right_ids.flatten()).view(shape)))
      << x.sizes() << " along " << axis << " at " << ids;
}

void check_drawn_elements(Drawn& drawn) {
  const DrawnSizes sizes = drawn_sizes(drawn, 1, 3, 1, 5);
  const auto [axis, front] = drawn_axis(drawn, static_cast<int64_t>(sizes.size()));
  DrawnSizes places;
  for (const int64_t size : sizes) places.push_back(drawn.whole(1, size));
  const auto [ids, right_ids] = drawn_indices(drawn, places, sizes[static_cast<size_t>(front)]);
  const at::Tensor x = torch::randn(sizes), updates = torch::randn(places);
  OnnxCase gather, scatter;
  gather.input("x", sizes).input("i", places, at::kLong);
  gather.node("GatherElements", {"x", "i"}, {"y"}, {{"axis", axis}}).output("y");
  EXPECT_TRUE(torch::equal(gather.run({x, ids}), x.gather(front, right_ids))) << x.sizes() << ids;
  scatter.input("x", sizes).input("i", places, at::kLong).input("u", places);
  scatter.node("ScatterElements", {"x", "i", "u"}, {"y"}, {{"axis", axis}, {"reduction", "add"}}).output("y");
  EXPECT_LT(share_off(scatter.run({x, ids, updates}), x.scatter_add(front, right_ids, updates)), 1e-6)
      << x.sizes() << ids;
}

/// Rows of indices into the first dimensions.
void check_drawn_rows(Drawn& drawn) {
  const DrawnSizes sizes = drawn_sizes(drawn, 1, 4, 1, 4);
  const int64_t depth = drawn.whole(1, static_cast<int64_t>(sizes.size())), count = drawn.whole(1, 5);
  std::vector<at::Tensor> ids, right_ids;
  for (int64_t d = 0; d < depth; ++d) {
    const auto [one, right] = drawn_indices(drawn, {count}, sizes[static_cast<size_t>(d)]);
    ids.push_back(one);
    right_ids.push_back(right);
  }
  c10::List<std::optional<at::Tensor>> where;
  for (const at::Tensor& one : right_ids) where.push_back(one);
  const at::Tensor x = torch::randn(sizes), rows = torch::stack(ids, 1), right = at::index(x, where);
  OnnxCase gather, scatter;
  gather.input("x", sizes).input("i", {count, depth}, at::kLong);
  gather.node("GatherND", {"x", "i"}, {"y"}).output("y");
  EXPECT_TRUE(torch::equal(gather.run({x, rows}), right)) << x.sizes() << rows;
  const at::Tensor updates = torch::randn(right.sizes());
  scatter.input("x", sizes).input("i", {count, depth}, at::kLong).input("u", updates.sizes().vec());
  scatter.node("ScatterND", {"x", "i", "u"}, {"y"}, {{"reduction", "add"}}).output("y");
  EXPECT_LT(share_off(scatter.run({x, rows, updates}), at::index_put(x, where, updates, true)), 1e-6)
      << x.sizes() << rows;
}

void check_drawn_one_hot(Drawn& drawn) {
  const DrawnSizes sizes = drawn_sizes(drawn, 1, 3, 1, 4);
  const int64_t depth = drawn.whole(1, 6), rank = static_cast<int64_t>(sizes.size());
  const auto [axis, front] = drawn_axis(drawn, rank + 1);
  const at::Tensor ids = drawn_whole(drawn, sizes, -2 * depth, 2 * depth);
  const bool whole_values = drawn.whole(0, 1) == 0;
  const at::Tensor values =
      whole_values ? torch::tensor({drawn.whole(-3, 3), drawn.whole(4, 9)}) : torch::tensor({-0.5F, 2.25F});
  OnnxCase file;
  file.input("x", sizes, at::kLong).tensor("depth", torch::tensor(depth)).tensor("values", values);
  file.node("OneHot", {"x", "depth", "values"}, {"y"}, {{"axis", axis}}).output("y");
  const at::Tensor on = at::where(ids < 0, ids + depth, ids).unsqueeze(-1) == torch::arange(depth);
  const at::Tensor right = at::where(on, values[1], values[0]).movedim(-1, front);
  const at::Tensor ours = file.run({ids});
  EXPECT_EQ(ours.scalar_type(), values.scalar_type());
  EXPECT_TRUE(torch::equal(ours, right)) << ids << " of " << depth << " along " << axis;
}

void check_drawn_lp_norm(Drawn& drawn) {
  const DrawnSizes sizes = drawn_sizes(drawn, 1, 4, 1, 5);
  const auto [axis, front] = drawn_axis(drawn, static_cast<int64_t>(sizes.size()));
  const int64_t p = drawn.whole(1, 2);
  DrawnSizes rows = sizes;
  rows[static_cast<size_t>(front)] = 1;
  const at::Tensor x = torch::randn(sizes) * drawn_whole(drawn, rows, 0, 2);
  const at::Tensor norm = x.to(at::kDouble).norm(p, front, true);
  OnnxCase file;
  file.input("x", sizes).node("LpNormalization", {"x"}, {"y"}, {{"axis", axis}, {"p", p}}).output("y");
  EXPECT_LT(share_off(file.run({x}), x / at::where(norm == 0, at::ones_like(norm), norm)), 1e-6)
      << x << " along " << axis << ", p " << p;
}

}  // namespace

TEST(RandomImport, SqueezesTakeAllOnesOrThoseThatAreNamed) {
  torch::manual_seed(1);
  Drawn drawn(1);
  for (int i = 0; i < 100; ++i) check_drawn_squeeze(drawn);
}

TEST(RandomImport, IndicesOfInputsCountFromEitherEnd) {
  torch::manual_seed(2);
  Drawn drawn(2);
  for (int i = 0; i < 60; ++i) check_drawn_gather(drawn);
  for (int i = 0; i < 30; ++i) check_drawn_elements(drawn);
  for (int i = 0; i < 30; ++i) check_drawn_rows(drawn);
}

TEST(RandomImport, ClassesCountFromEitherEnd) {
  torch::manual_seed(3);
  Drawn drawn(3);
  for (int i = 0; i < 60; ++i) check_drawn_one_hot(drawn);
}

TEST(RandomImport, NormalisedRowsOfZerosAreZeros) {
  torch::manual_seed(4);
  Drawn drawn(4);
  for (int i = 0; i < 60; ++i) check_drawn_lp_norm(drawn);
}

/// Tables of engines read places below zero from the end, too.
TEST(RandomImport, EnginesReadTablesFromEitherEnd) {
  torch::manual_seed(5);
  Drawn drawn(5);
  for (int i = 0; i < 20; ++i) {
    const int64_t rows = drawn.whole(1, 7), columns = drawn.whole(1, 5), time = drawn.whole(1, 4);
    const at::Tensor table = torch::randn({rows, columns});
    OnnxCase file;
    file.input("ids", {-1, time}, at::kLong).tensor("table", table);
    file.node("Gather", {"table", "ids"}, {"y"}).output("y");
    runtime::Engine engine(lower(*file.import()));
    for (const int64_t batch : {1, 3}) {
      const auto [ids, right] = drawn_indices(drawn, {batch, time}, rows);
      EXPECT_TRUE(torch::equal(run_engine_all(engine, {ids}).at(0),
                               table.index_select(0, right.flatten()).view({batch, time, columns})))
          << ids << " of " << rows;
    }
  }
}

}  // namespace ulp::test
