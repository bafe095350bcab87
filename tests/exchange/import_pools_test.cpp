// Pools of ONNX files, window by window: unequal pads, ceil_mode, counted padding, dilations.
#include <torch/torch.h>

#include <limits>

#include "error_of.h"
#include "onnx_case.h"

namespace ulp::test {

namespace {

struct DrawnPool {
  std::string op;
  std::vector<int64_t> in, kernel, strides, dilations, before, behind;
  bool ceil = false, counts_padding = false;
};

int64_t windows_of(const DrawnPool& pool, size_t d) {
  const int64_t room =
      pool.in[d] + pool.before[d] + pool.behind[d] - (pool.kernel[d] - 1) * pool.dilations[d] - 1;
  if (room < 0) return 0;
  int64_t count = (pool.ceil ? room + pool.strides[d] - 1 : room) / pool.strides[d] + 1;
  if (pool.ceil && (count - 1) * pool.strides[d] >= pool.in[d] + pool.before[d]) --count;
  return count;
}

/// The places of all elements of a window that begins at `first`, as numbers in the row-major order of the
/// kernel.
double window_value(const DrawnPool& pool, const at::Tensor& x, const std::vector<int64_t>& at_window) {
  double sum = 0, largest = -std::numeric_limits<double>::infinity();
  int64_t counted = 0, all = 1;
  for (const int64_t size : pool.kernel) all *= size;
  for (int64_t i = 0; i < all; ++i) {
    int64_t rest = i, place = 0;
    bool inside = true, padding = true;
    for (size_t d = pool.kernel.size(); d-- > 0;) {
      const int64_t at =
          at_window[d] * pool.strides[d] - pool.before[d] + rest % pool.kernel[d] * pool.dilations[d];
      rest /= pool.kernel[d];
      inside = inside && at >= 0 && at < pool.in[d];
      padding = padding && at >= -pool.before[d] && at < pool.in[d] + pool.behind[d];
      int64_t stride = 1;
      for (size_t k = d + 1; k < pool.in.size(); ++k) stride *= pool.in[k];
      place += at * stride;
    }
    counted += inside || (pool.counts_padding && padding);
    if (!inside) continue;
    const double value = x.const_data_ptr<float>()[place];
    sum += value;
    largest = std::max(largest, value);
  }
  if (pool.op == "MaxPool") return largest;
  return counted == 0 ? 0 : sum / static_cast<double>(counted);
}

at::Tensor right_of_pool(const DrawnPool& pool, const at::Tensor& x) {
  std::vector<int64_t> counts, place(pool.in.size(), 0);
  for (size_t d = 0; d < pool.in.size(); ++d) counts.push_back(windows_of(pool, d));
  const at::Tensor y = torch::empty(counts, torch::kDouble);
  for (int64_t i = 0; i < y.numel(); ++i) {
    int64_t rest = i;
    for (size_t d = counts.size(); d-- > 0; rest /= counts[d]) place[d] = rest % counts[d];
    y.mutable_data_ptr<double>()[i] = window_value(pool, x, place);
  }
  return y;
}

DrawnPool drawn_pool(Drawn& drawn) {
  DrawnPool pool;
  pool.op = drawn.whole(0, 1) == 0 ? "MaxPool" : "AveragePool";
  pool.ceil = drawn.whole(0, 2) > 0;
  pool.counts_padding = drawn.whole(0, 1) == 0;
  const int64_t dims = drawn.whole(1, 2);
  for (int64_t d = 0; d < dims; ++d) {
    pool.in.push_back(drawn.whole(2, 9));
    pool.kernel.push_back(drawn.whole(1, 4));
    pool.strides.push_back(drawn.whole(1, 4));
    pool.dilations.push_back(drawn.one_of<int64_t>({1, 1, 1, 2}));
    pool.before.push_back(drawn.whole(0, pool.kernel.back() - 1));
    pool.behind.push_back(drawn.whole(0, pool.kernel.back() - 1));
  }
  return pool;
}

OnnxCase file_of_pool(const DrawnPool& pool, std::vector<int64_t> sizes) {
  std::vector<int64_t> pads = pool.before;
  pads.insert(pads.end(), pool.behind.begin(), pool.behind.end());
  OnnxAttributes attributes = {{"kernel_shape", pool.kernel},
                               {"strides", pool.strides},
                               {"dilations", pool.dilations},
                               {"pads", pads},
                               {"ceil_mode", pool.ceil ? 1 : 0}};
  if (pool.op == "AveragePool") attributes.emplace_back("count_include_pad", pool.counts_padding ? 1 : 0);
  OnnxCase file;
  return file.input("x", sizes).node(pool.op, {"x"}, {"y"}, attributes).output("y");
}

}  // namespace

TEST(ImportPools, GivesEveryWindowOfUnequalPadsAndCeilMode) {
  torch::manual_seed(1);
  Drawn drawn(3);
  int compared = 0;
  for (int i = 0; i < 300; ++i) {
    const DrawnPool pool = drawn_pool(drawn);
    bool fits = true;
    for (size_t d = 0; d < pool.in.size(); ++d) fits = fits && windows_of(pool, d) > 0;
    if (!fits) continue;
    std::vector<int64_t> sizes = {1, 1};
    sizes.insert(sizes.end(), pool.in.begin(), pool.in.end());
    const at::Tensor x = torch::randn(pool.in);
    const at::Tensor y = file_of_pool(pool, sizes).run({x.view(sizes)}, 19);
    EXPECT_LT(share_off(y.squeeze(0).squeeze(0), right_of_pool(pool, x)), 1e-5)
        << pool.op << " of " << pool.in << ", kernel " << pool.kernel << ", strides " << pool.strides
        << ", dilations " << pool.dilations << ", pads " << pool.before << pool.behind
        << (pool.ceil ? ", ceil" : "") << (pool.counts_padding ? ", padding counts" : "");
    ++compared;
  }
  EXPECT_GT(compared, 200);
}

TEST(ImportPools, WindowsWithoutABoundAreRefused) {
  const auto refusal = [](const std::string& op, int64_t kernel, int64_t stride, int64_t dilation,
                          int64_t pad) {
    const DrawnPool pool{.op = op,
                         .in = {8},
                         .kernel = {kernel},
                         .strides = {stride},
                         .dilations = {dilation},
                         .before = {pad},
                         .behind = {pad}};
    return error_of([&] { file_of_pool(pool, {1, 1, 8}).import(19); });
  };
  constexpr int64_t kMore = (int64_t{1} << 20) + 1;
  EXPECT_SAYS(refusal("MaxPool", 4001, 1, 1, 2000), "expected pads of at most 1024, got 2000");
  EXPECT_SAYS(refusal("MaxPool", kMore, 1, 1, 0), "expected a window of sizes of 1 to 1048576");
  EXPECT_SAYS(refusal("AveragePool", 2, kMore, 1, 0), "1 to 1048576 as attribute 'strides'");
  EXPECT_SAYS(refusal("AveragePool", 2, 1, kMore, 0), "1 to 1048576 as attribute 'dilations'");
  EXPECT_SAYS(refusal("MaxPool", 2, 1, 1, kMore), "0 to 1048576 as attribute 'pads'");
}

TEST(ImportPools, LargestCodesStayCodes) {
  OnnxCase file;
  file.input("x", {1, 1, 4}, at::kByte);
  file.node("MaxPool", {"x"}, {"y"},
            {{"kernel_shape", std::vector<int64_t>{2}}, {"pads", std::vector<int64_t>{1, 0}}});
  const at::Tensor y = file.output("y").run({torch::tensor({3, 200, 7, 9}, torch::kByte).view({1, 1, 4})});
  EXPECT_TRUE(torch::equal(y.flatten(), torch::tensor({3, 200, 200, 9}, torch::kByte)));
}

TEST(ImportPools, PowersOverWindows) {
  const at::Tensor x = torch::tensor({{{1.0F, -2.0F, 2.0F, 4.0F}}});
  const auto with = [&](const std::string& op, const OnnxAttributes& attributes) {
    OnnxCase file;
    return file.input("x", {1, 1, 4}).node(op, {"x"}, {"y"}, attributes).output("y").run({x}).flatten();
  };
  const std::vector<int64_t> two = {2};
  EXPECT_LT(share_off(with("LpPool", {{"kernel_shape", two}, {"strides", two}}),
                      torch::tensor({5.0F, 20.0F}).sqrt()),
            1e-6);
  EXPECT_LT(share_off(with("GlobalLpPool", {{"p", 1}}), torch::tensor({9.0F})), 1e-6);
}

TEST(ImportPools, PadsByWordsBesideDilationsAreRefused) {
  OnnxCase file;
  file.input("x", {1, 1, 9});
  file.node("MaxPool", {"x"}, {"y"},
            {{"kernel_shape", std::vector<int64_t>{2}},
             {"dilations", std::vector<int64_t>{2}},
             {"auto_pad", "SAME_UPPER"}});
  EXPECT_ERROR(file.output("y").import(), "expected pads as numbers for a pool with dilations");
}

}  // namespace ulp::test
