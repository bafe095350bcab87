// Archives whose calls have arguments that LibTorch trusts: they are held against the tensors, or refused by
// name. What is tried here is harmless in LibTorch, too.
#include "changed_pt2.h"

namespace ulp::test {

namespace {

using exchange::import_pt2;
using Json = nlohmann::json;

/// torch.full: `dtype` is torch.export's number of the type.
Json pt2_full(const std::string& result, const std::vector<int64_t>& sizes, const Json& value,
              int dtype = 7) {
  return pt2_call(
      "full.default", result,
      {{"size", pt2_numbers(sizes)}, {"fill_value", value}, {"dtype", {{"as_scalar_type", dtype}}}});
}

constexpr int kPt2Int64 = 5;

}  // namespace

class TrustedPt2 : public ChangedPt2 {
 protected:
  /// The error of the program with these nodes before all others; the last of them is at fault.
  std::string error_with(const std::vector<Json>& calls) {
    const auto kept = entries_;
    put_before(calls);
    const std::string error = error_of_entries();
    EXPECT_SAYS(error, "node '" + calls.back()["name"].get<std::string>() + "'");
    entries_ = kept;
    return error;
  }
  /// Whether LibTorch computes the nodes: the program behind them is as it was.
  void runs_with(const std::vector<Json>& calls) {
    const auto kept = entries_;
    put_before(calls);
    write_pt2(folder_ / "m.pt2", entries_);
    EXPECT_NO_THROW(import_pt2(folder_ / "m.pt2")) << calls.back().dump();
    entries_ = kept;
  }

 private:
  /// Puts calls in front of the program's.
  void put_before(const std::vector<Json>& calls) {
    change_program([&](Json& program) {
      Json nodes = calls;
      for (const Json& node : program["graph_module"]["graph"]["nodes"]) nodes.push_back(node);
      program["graph_module"]["graph"]["nodes"] = nodes;
    });
  }
};

TEST_F(TrustedPt2, DimensionsOfTransformsAreThoseOfTheirTensors) {
  const Json x = pt2_full("f", {4, 8}, {{"as_float", 1.0}});
  const auto real = [](const std::vector<int64_t>& dims, int64_t mode = 0) {
    return pt2_call("_fft_r2c.default", "t",
                    {{"self", pt2_tensor("f")},
                     {"dim", pt2_numbers(dims)},
                     {"normalization", pt2_number(mode)},
                     {"onesided", {{"as_bool", true}}}});
  };
  EXPECT_SAYS(error_with({x, real({1}, 7)}), "a normalization of 0 to 2, got 7");
  const auto back = [](int64_t last) {
    return pt2_call("_fft_c2r.default", "b",
                    {{"self", pt2_tensor("t")},
                     {"dim", pt2_numbers({1})},
                     {"normalization", pt2_number(0)},
                     {"last_dim_size", pt2_number(last)}});
  };
  runs_with({x, real({0, 1}), back(8)});
}

TEST_F(TrustedPt2, ScalesAreThoseOfTheSizes) {
  const Json x = pt2_full("f", {1, 1, 4, 6}, {{"as_float", 1.0}});
  const auto resized = [](const char* target, double high, double wide) {
    return pt2_call(target, "r",
                    {{"self", pt2_tensor("f")},
                     {"output_size", pt2_numbers({5, 9})},
                     {"align_corners", {{"as_bool", false}}},
                     {"scales_h", {{"as_float", high}}},
                     {"scales_w", {{"as_float", wide}}}});
  };
  for (const char* target : {"_upsample_bilinear2d_aa.default", "upsample_bilinear2d.default"}) {
    EXPECT_SAYS(error_with({x, resized(target, 2.5, 1.5)}), "a scale of 5 / 4, got 2.5");
    runs_with({x, resized(target, 1.3, 1.5)});
  }
}

TEST_F(TrustedPt2, FactorsStandForSizes) {
  const Json x = pt2_full("f", {1, 1, 4, 6}, {{"as_float", 1.0}}), none = {{"as_none", true}};
  const auto resized = [&](const Json& sizes, const Json& factors) {
    return pt2_call("upsample_nearest2d.vec", "r",
                    {{"input", pt2_tensor("f")}, {"output_size", sizes}, {"scale_factors", factors}});
  };
  runs_with({x, resized(pt2_numbers({5, 9}), none)});
  runs_with({x, resized(none, {{"as_floats", {1.3, 1.5}}})});
}

TEST_F(TrustedPt2, RecurrentLayersHaveTheirStatesAndWeights) {
  std::vector<Json> made = {
      pt2_full("f", {3, 2, 4}, {{"as_float", 1.0}}),     pt2_full("h", {2, 2, 5}, {{"as_float", 0.5}}),
      pt2_full("short", {1, 2, 5}, {{"as_float", 0.5}}), pt2_full("w0", {20, 4}, {{"as_float", 0.1}}),
      pt2_full("w1", {20, 5}, {{"as_float", 0.1}}),      pt2_full("counts", {2}, pt2_number(1), kPt2Int64),
      pt2_full("rows", {3, 4}, {{"as_float", 1.0}})};
  const auto named = [](const std::vector<std::string>& names) {
    Json list = Json::array();
    for (const std::string& name : names) list.push_back({{"name", name}});
    return Json{{"as_tensors", list}};
  };
  const auto with = [&](const Json& call) {
    std::vector<Json> calls = made;
    calls.push_back(call);
    return calls;
  };
  const auto layer = [&](const std::vector<std::string>& states, const std::vector<std::string>& weights,
                         const char* input = "f") {
    const bool packed = std::string(input) == "rows";
    Json arguments = {{packed ? "data" : "input", pt2_tensor(input)},
                      {"hx", named(states)},
                      {"params", named(weights)},
                      {"has_biases", {{"as_bool", false}}},
                      {"num_layers", pt2_number(2)},
                      {"dropout", {{"as_float", 0.0}}},
                      {"train", {{"as_bool", false}}},
                      {"bidirectional", {{"as_bool", false}}}};
    arguments[packed ? "batch_sizes" : "batch_first"] =
        packed ? pt2_tensor("counts") : Json{{"as_bool", false}};
    Json call = pt2_call(packed ? "lstm.data" : "lstm.input", "y", arguments);
    for (const char* state : {"y_h", "y_c"}) call["outputs"].push_back(pt2_tensor(state));
    return with(call);
  };
  const std::vector<std::string> right = {"w0", "w1", "w1", "w1"};
  runs_with(layer({"h", "h"}, right));
  EXPECT_SAYS(error_with(layer({"h", "short"}, right)), "states of 2 layers and directions, got [1, 2, 5]");
  EXPECT_SAYS(error_with(layer({"h"}, right)), "of the dimensions of a recurrent layer");
  EXPECT_SAYS(error_with(layer({"h", "h"}, {"w0", "w1", "w0", "w1"})), "weights of [20, 5]");
}

TEST_F(TrustedPt2, PlacesAndKernelsThatLieAreRefused) {
  const Json table = pt2_full("f", {5, 4}, {{"as_float", 1.0}}),
             ids = pt2_full("ids", {3}, pt2_number(1), kPt2Int64);
  const Json offsets = pt2_full("offsets", {2}, pt2_number(1), kPt2Int64);
  Json bag = pt2_call(
      "embedding_bag.default", "e0",
      {{"weight", pt2_tensor("f")}, {"indices", pt2_tensor("ids")}, {"offsets", pt2_tensor("offsets")}});
  for (const char* more : {"e1", "e2", "e3"}) bag["outputs"].push_back(pt2_tensor(more));
  EXPECT_SAYS(error_with({table, ids, offsets, bag}), "bags that begin at 0");
  const Json image = pt2_full("g", {1, 3, 9, 9, 9}, {{"as_float", 1.0}});
  const Json weight = pt2_full("w", {3, 3, 2, 2, 2}, {{"as_float", 1.0}});
  const auto conv = [](const std::vector<int64_t>& kernel) {
    return pt2_call(
        "slow_conv3d.default", "c",
        {{"self", pt2_tensor("g")}, {"weight", pt2_tensor("w")}, {"kernel_size", pt2_numbers(kernel)}});
  };
  runs_with({image, weight, conv({2, 2, 2})});
}

TEST_F(TrustedPt2, CallsWithoutABoundAreRefused) {
  const Json x = pt2_full("f", {1, 1, 8, 8}, {{"as_float", 0.5}});
  const auto of_x = [](const char* target, Json arguments) {
    arguments["self"] = pt2_tensor("f");
    return pt2_call(target, "y", arguments);
  };
  const auto pool = [&](int64_t padding) {
    return of_x("max_pool2d.default", {{"kernel_size", pt2_numbers({2 * padding + 1, 2 * padding + 1})},
                                       {"stride", pt2_numbers({1, 1})},
                                       {"padding", pt2_numbers({padding, padding})}});
  };
  EXPECT_SAYS(error_with({x, pool(2000)}), "paddings of at most 1024");
  runs_with({x, pool(16)});
  EXPECT_SAYS(error_with({x, of_x("diff.default", {{"n", pt2_number(65)}})}), "a count of at most 64");
  EXPECT_SAYS(error_with({pt2_full("f", {4, 4}, {{"as_float", 0.5}}),
                          of_x("linalg_matrix_power.default", {{"n", pt2_number(int64_t{1} << 41)}})}),
              "a count of at most 1099511627776");
  for (const char* target :
       {"special_laguerre_polynomial_l.n_scalar", "special_legendre_polynomial_p.n_scalar"})
    EXPECT_SAYS(error_with({x, pt2_call(target, "y", {{"x", pt2_tensor("f")}, {"n", pt2_number(3)}})}),
                "only computes");
  EXPECT_SAYS(error_with({x, of_x("special_zeta.default", {{"other", pt2_tensor("f")}})}), "only computes");
  EXPECT_SAYS(error_with({x, of_x("polygamma.default", {{"n", pt2_number(3)}})}), "only computes");
}

}  // namespace ulp::test
