// GPTQ: one matrix beside its definition written out, and whole models.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "error_of.h"
#include "small_bert.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/quant/quantize_model.h"
#include "ulp/quant/scheme/round_trip.h"
#include "ulp/quant/weights/calibrated_weights.h"

namespace ulp::quant {
namespace {

using at::Tensor;

/// Rows whose columns depend on each other, of sizes apart.
Tensor correlated(int64_t rows, int64_t columns) {
  const Tensor mix = at::randn({columns, columns}) / std::sqrt(static_cast<double>(columns));
  return at::randn({rows, columns}).mm(mix) * at::linspace(0.2, 3, columns) + 0.3;
}

Tensor hessian_of(const Tensor& x) {
  const Tensor wide = x.to(at::kDouble);
  return wide.t().mm(wide);
}

Tensor values_of(const StoredQuantizedWeight& codes) {
  return dequantize_weight(codes);
}

double error_of(const Tensor& weight, const Tensor& rounded, const Tensor& hessian) {
  const Tensor d = (weight - rounded).to(at::kDouble);
  return d.mm(hessian).mul(d).sum().item<double>();
}

/// Section 3.3 of the paper without its shortcuts: after each column the inverse of what is left of H is
/// found anew, and e / [H_F^-1]_jj times its row is taken from the columns that are left.
Tensor plain_gptq(const Tensor& weight, const Tensor& hessian, const WeightOnlyRecipe& recipe) {
  const int64_t columns = weight.size(1), group = recipe.group < 0 ? columns : recipe.group;
  const Tensor mean = hessian.diagonal().mean() * recipe.damp;
  const Tensor h = hessian + at::eye(columns, at::kDouble) * mean;
  std::vector<int64_t> order(static_cast<size_t>(columns));
  std::iota(order.begin(), order.end(), 0);
  if (recipe.act_order) {
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return hessian[a][a].item<double>() > hessian[b][b].item<double>();
    });
  }
  const bool fixed = recipe.act_order || recipe.static_groups;
  Scheme scheme = recipe.scheme();
  scheme.granularity = PerChannel{0};
  Tensor w = weight.to(at::kDouble).clone(), result = at::zeros_like(weight);
  std::vector<QParams> params;
  for (int64_t g = 0; g * group < columns; ++g)
    params.push_back(qparams_of(weight.narrow(1, g * group, std::min(group, columns - g * group)), scheme));
  for (int64_t i = 0; i < columns; ++i) {
    const int64_t j = order[static_cast<size_t>(i)];
    QParams& own = params[static_cast<size_t>(j / group)];
    if (!fixed && j % group == 0)
      own = qparams_of(w.narrow(1, j, std::min(group, columns - j)).to(at::kFloat), scheme);
    const Tensor column = w.select(1, j).to(at::kFloat).unsqueeze(1);
    const Tensor rounded = quantize_dequantize(column, own).squeeze(1);
    result.select(1, j).copy_(rounded);
    const Tensor left = at::tensor(std::vector<int64_t>(order.begin() + i, order.end()));
    const Tensor inverse = at::linalg_inv(h.index_select(0, left).index_select(1, left));
    const Tensor e = (w.select(1, j) - rounded) / inverse[0][0];
    w.index_add_(1, left, -e.unsqueeze(1) * inverse[0].unsqueeze(0));
  }
  return result;
}

TEST(Gptq, IsItsDefinitionColumnByColumn) {
  torch::manual_seed(4);
  const Tensor weight = at::randn({9, 44}), h = hessian_of(correlated(300, 44));
  int64_t differing = 0, all = 0, runs = 0;
  double ratios = 0;
  for (const int64_t bits : {2, 3, 4, 8}) {
    for (const int64_t group : {-1, 8, 16}) {
      if (bits == 8 && group > 0) continue;
      for (const int way : {0, 1, 2, 3}) {
        WeightOnlyRecipe recipe{.bits = bits, .group = group, .affine = way % 2 == 1 && bits < 8};
        recipe.act_order = way >= 2;
        recipe.block = way == 0 ? 12 : 128;
        WeightError error;
        const Tensor got = values_of(gptq_weight(weight, h, recipe, &error));
        const Tensor want = plain_gptq(weight, h, recipe);
        differing += (got - want).abs().gt(1e-4).sum().item<int64_t>();
        all += got.numel();
        EXPECT_NEAR(error.error, error_of(weight, got, h) / error_of(weight, at::zeros_like(got), h), 1e-9);
        ratios += error.error / error.plain_error;
        ++runs;
      }
    }
  }
  // f32 beside double: a code that lies at a tie may differ, and with it those behind it in its row.
  EXPECT_LT(differing, all / 200) << "of " << all;
  EXPECT_LT(ratios / static_cast<double>(runs), 0.8) << "beside plain rounding";
}

TEST(Gptq, WithoutCorrelationItIsPlainRounding) {
  torch::manual_seed(5);
  const Tensor weight = at::randn({6, 40});
  for (const bool affine : {false, true}) {
    const WeightOnlyRecipe recipe{.bits = 4, .group = 16, .affine = affine, .act_order = true};
    const StoredQuantizedWeight codes = gptq_weight(weight, at::eye(40, at::kDouble) * 3, recipe);
    EXPECT_EQ(codes.codes.sizes(), at::IntArrayRef({6, 3, 8})) << "the last group is padded";
    EXPECT_TRUE(values_of(codes).equal(quantize_dequantize(weight, qparams_of(weight, recipe.scheme()))));
  }
  // Inputs that were always zero.
  Tensor h = hessian_of(correlated(100, 40));
  h.narrow(0, 30, 10).zero_();
  h.narrow(1, 30, 10).zero_();
  const WeightOnlyRecipe recipe{.bits = 4, .group = 10};
  WeightError error;
  const Tensor got = values_of(gptq_weight(weight, h, recipe, &error));
  const Tensor tail = weight.narrow(1, 30, 10);
  EXPECT_TRUE(got.narrow(1, 30, 10).equal(quantize_dequantize(tail, qparams_of(tail, recipe.scheme()))));
  EXPECT_SAYS(error.note, "10 inputs were always 0");
}

TEST(Gptq, DampsMoreWhereItMust) {
  torch::manual_seed(6);
  const Tensor weight = at::randn({5, 24});
  // Less than nothing in one direction: what rounding of sums may leave.
  Tensor h = hessian_of(correlated(8, 24));
  const Tensor v = at::ones({24, 1}, at::kDouble);
  h -= 0.05 * h.diagonal().mean() * v.mm(v.t()) / 24;
  WeightError error;
  const WeightOnlyRecipe recipe{.bits = 4, .group = 8};
  gptq_weight(weight, h, recipe, &error);
  EXPECT_DOUBLE_EQ(error.damp, 0.1);
  EXPECT_SAYS(error.note, "more damping than asked for");
  EXPECT_ERROR(gptq_weight(weight, -h, recipe), "expected a Hessian of 'weight' that damping makes positive");
  EXPECT_ERROR(gptq_weight(weight, h.narrow(0, 0, 20), recipe), "a Hessian [columns, columns]");
  EXPECT_ERROR(gptq_weight(weight / 0, h, recipe), "expected a finite weight and Hessian");
  EXPECT_ERROR(gptq_weight(weight, h, {.bits = 5}), "expected bits 8, 4, 3 or 2, got 5");
  EXPECT_ERROR(gptq_weight(weight, h, {.bits = 4, .group = 7}), "expected an even group, or -1, got 7");
}

std::vector<std::vector<Tensor>> token_batches(int64_t batches, int64_t rows = 6) {
  torch::manual_seed(7);
  std::vector<std::vector<Tensor>> all;
  for (int64_t i = 0; i < batches; ++i) all.push_back({at::randint(0, 256, {rows, 9})});
  return all;
}

CalibrationData data_of(const std::vector<std::vector<Tensor>>& batches) {
  return [&batches](const RunBatch& run) {
    for (const auto& batch : batches) run(batch);
  };
}

/// The buffers of codes, by name.
std::map<std::string, Tensor> buffers_of(const graph::GraphModule& model) {
  std::map<std::string, Tensor> all;
  for (const auto& item : model.named_buffers()) all[item.key()] = item.value();
  return all;
}

TEST(Gptq, LayersFollowEachOtherAndTheModelComesCloser) {
  const at::NoGradGuard no_grad;
  const auto captured = captured_bert(64, 96);
  const auto batches = token_batches(6);
  const CalibrationData data = data_of(batches);
  WeightOnlyRecipe recipe{.bits = 3, .group = 16, .embeddings = false};
  graph::PassReport report;
  std::vector<WeightError> errors;
  const auto by_data = gptq(captured, data, recipe, &report, &errors);
  by_data->graph().verify();
  ASSERT_EQ(errors.size(), 14U);
  EXPECT_EQ(report.changes.size(), 14U);
  EXPECT_SAYS(report.changes.front(), "reads weights of 3 bits: error 0.");
  for (const WeightError& error : errors) {
    EXPECT_LT(error.error, error.plain_error) << error.layer;
    EXPECT_GT(error.rows, 0);
    EXPECT_EQ(error.damp, 0.01);
  }
  EXPECT_EQ(errors.front().rows, 6 * 6 * 9);
  EXPECT_EQ(errors.front().groups, 4);
  const Tensor x = batches[0][0], exact = captured->forward(x);
  const auto plain = quantize_weights(captured, recipe);
  const auto distance = [&](graph::GraphModule& model) {
    return (model.forward(x) - exact).norm().item<double>();
  };
  EXPECT_LT(distance(*by_data), 0.8 * distance(*plain));
  // The last layer's inputs are those of the layers before it with their codes: its own plain error says so.
  EXPECT_NE(errors.back().plain_error, 0);
  // The same again, with nothing kept, and through a module.
  recipe.method = WeightMethod::gptq;
  recipe.recompute = true;
  const auto recomputed = quantize_weights(captured, recipe, data);
  recipe.recompute = false;
  const auto through = quantize(captured, AnyRecipe(recipe), [&](graph::GraphModule& model) {
    for (const auto& batch : batches) model.forward(batch);
  });
  const auto want = buffers_of(*by_data);
  for (const auto& other : {recomputed, through}) {
    const auto got = buffers_of(*other);
    ASSERT_EQ(got.size(), want.size());
    for (const auto& [name, tensor] : want) EXPECT_TRUE(tensor.equal(got.at(name))) << name;
  }
}

TEST(Gptq, InputsAreThoseOfLayersWithCodes) {
  const at::NoGradGuard no_grad;
  torch::manual_seed(9);
  torch::nn::Sequential net(torch::nn::Linear(24, 32), torch::nn::ReLU(), torch::nn::Linear(32, 5));
  const Tensor x = correlated(200, 24);
  const auto captured = capture(net, {x});
  const std::vector<std::vector<Tensor>> batches = {{x.narrow(0, 0, 90)}, {x.narrow(0, 90, 110)}};
  const WeightOnlyRecipe recipe{.bits = 2, .group = 8, .affine = true};
  std::vector<WeightError> errors;
  const auto made = gptq(captured, data_of(batches), recipe, nullptr, &errors);
  const auto params = captured->named_parameters();
  const Tensor first = values_of(gptq_weight(params["0.weight"], hessian_of(x), recipe));
  const Tensor between = at::relu(at::linear(x, first, params["0.bias"]));
  const Tensor second = values_of(gptq_weight(params["2.weight"], hessian_of(between), recipe));
  EXPECT_TRUE(at::allclose(made->forward(x), at::linear(between, second, params["2.bias"]), 1e-4, 1e-4));
}

/// Two layers share a weight, and one reads what an embedding does.
struct Shared : torch::nn::Module {
  Shared() {
    words = register_module("words", torch::nn::Embedding(20, 16));
    layer = register_module("layer", torch::nn::Linear(16, 16));
  }
  Tensor forward(const Tensor& ids) {
    return at::linear(layer(torch::tanh(layer(words(ids)))), words->weight);
  }
  torch::nn::Embedding words{nullptr};
  torch::nn::Linear layer{nullptr};
};

TEST(Gptq, EmbeddingsAndWhatSharesThemAreRounded) {
  const at::NoGradGuard no_grad;
  torch::manual_seed(10);
  Shared model;
  const Tensor ids = at::randint(0, 20, {8, 6});
  const auto captured = capture(model, {ids});
  const std::vector<std::vector<Tensor>> batches = {{ids}};
  for (const WeightMethod method : {WeightMethod::gptq, WeightMethod::awq}) {
    WeightOnlyRecipe recipe{.bits = 2, .group = 16, .method = method};
    graph::PassReport report;
    std::vector<WeightError> errors;
    const auto made = quantize_weights(captured, recipe, data_of(batches), &report, &errors);
    ASSERT_EQ(errors.size(), 2U) << "one for each weight";
    EXPECT_EQ(errors[0].rows, 0);
    EXPECT_EQ(errors[1].rows, 48);
    EXPECT_EQ(errors[1].alpha, 0) << "the other layer's input is another";
    EXPECT_SAYS(report.changes.front(), "words reads weights of 4 bits, rounded plainly");
    const auto buffers = buffers_of(*made);
    const Tensor table = quantize_dequantize(
        model.words->weight,
        qparams_of(model.words->weight, WeightOnlyRecipe{.bits = 4, .group = 16}.scheme()));
    EXPECT_TRUE(dequantize_weight(buffers.at("words.weight.int4"), buffers.at("words.weight.scale"), {}, 16)
                    .equal(table));
    // The head follows GPTQ where the embedding stays in float.
    recipe.embeddings = false;
    quantize_weights(captured, recipe, data_of(batches), nullptr, &errors);
    EXPECT_EQ(errors.back().rows, 48);
  }
}

TEST(Gptq, AWeightOfSeveralLayersIsDecidedByTheFirst) {
  struct Again : torch::nn::Module {
    torch::nn::Linear layer = register_module("layer", torch::nn::Linear(16, 16));
    Tensor forward(const Tensor& x) { return layer(layer(x).relu()); }
  } model;
  const auto captured = capture(model, {at::randn({2, 16})});
  std::vector<WeightError> errors;
  gptq(
      captured,
      [](const RunBatch& run) {
        run({at::randn({40, 16})});
      },
      {.bits = 4, .group = 16}, nullptr, &errors);
  ASSERT_EQ(errors.size(), 1U);
  EXPECT_NE(errors[0].note.find("2 layers read its weight"), std::string::npos) << errors[0].note;
}

TEST(Gptq, SaysWhatIsWrongAndLeavesTheModelAsItIs) {
  const at::NoGradGuard no_grad;
  const auto captured = captured_bert(64, 96);
  const auto batches = token_batches(1, 1);
  const Tensor before = captured->forward(batches[0][0]);
  const auto run = [&](const CalibrationData& data, const WeightOnlyRecipe& recipe = {.bits = 4}) {
    return gptq(captured, data, recipe);
  };
  EXPECT_ERROR(run({}), "expected calibration data for the method gptq, got none");
  EXPECT_ERROR(run([](const RunBatch&) {}), "expected rows of calibration data for 'bert.encoder.layer.0");
  EXPECT_ERROR(run([](const RunBatch& go) { go({at::zeros({2, 9}, at::kFloat)}); }), "of dtype Long");
  EXPECT_ERROR(quantize_weights(captured, {.bits = 4, .method = WeightMethod::awq}),
               "expected calibration data for the method awq, got none");
  EXPECT_ERROR(quantize(captured, WeightOnlyRecipe{.bits = 4, .method = WeightMethod::gptq}), "got none");
  EXPECT_ERROR(run(data_of(batches), {.bits = 4, .damp = 2}), "damp");
  EXPECT_ERROR(quantize_weights(captured, {.bits = 4, .act_order = true}),
               "with the method gptq only, got rtn");
  EXPECT_ERROR(gptq(nullptr, data_of(batches)), "got null");
  // One text of 9 tokens: less than the columns, which damping makes up for.
  graph::PassReport report;
  std::vector<WeightError> errors;
  gptq(captured, data_of(batches), {.bits = 4, .group = 16}, &report, &errors);
  EXPECT_SAYS(errors.back().note, "fewer rows than columns");
  torch::nn::Linear layer(8, 4);
  const auto alone = capture(layer, {at::randn({2, 8})});
  const auto feed = [&](const Tensor& x) {
    return gptq(alone, [&](const RunBatch& go) { go({x}); }, {.bits = 4, .group = 8});
  };
  const Tensor x = at::ones({3, 8});
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    Tensor wrong = x.clone();
    wrong[1][2] = bad;
    EXPECT_ERROR(feed(wrong), "expected finite inputs of '");
  }
  EXPECT_ERROR(feed(x * 1e25), "whose squares are finite");
  EXPECT_ERROR(feed(x.narrow(0, 0, 0)), "expected rows of calibration data");
  EXPECT_TRUE(captured->forward(batches[0][0]).equal(before));
}

TEST(Gptq, ModelsOf16BitsAndRowsOfOneGroup) {
  const at::NoGradGuard no_grad;
  torch::manual_seed(11);
  torch::nn::Sequential net(torch::nn::Linear(15, 32), torch::nn::ReLU(), torch::nn::Linear(32, 5));
  net->to(at::kBFloat16);
  const Tensor x = correlated(100, 15).to(at::kBFloat16);
  const auto captured = capture(net, {x});
  const std::vector<std::vector<Tensor>> batches = {{x}};
  for (const WeightMethod method : {WeightMethod::gptq, WeightMethod::awq}) {
    const auto made =
        quantize_weights(captured, {.bits = 4, .group = -1, .method = method}, data_of(batches));
    const Tensor got = made->forward(x), want = captured->forward(x);
    EXPECT_EQ(got.scalar_type(), at::kBFloat16);
    EXPECT_LT((got - want).to(at::kFloat).norm().item<double>(),
              0.2 * want.to(at::kFloat).norm().item<double>());
    EXPECT_EQ(buffers_of(*made).at("0.weight.int4").sizes(), at::IntArrayRef({32, 1, 8}));
  }
}

}  // namespace
}  // namespace ulp::quant
