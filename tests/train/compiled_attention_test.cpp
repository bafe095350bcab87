// Attention, embeddings, and the permutations, parts and repetitions around them in compiled steps, beside LibTorch in float64.
#include <random>

#include "compiled_support.h"
#include "error_of.h"

namespace ulp::train {
namespace {

using test::contains;
using test::error_of;
using test::expect_gradients;
using test::Tensors;

/// Sizes of one attention and how its heads lie.
struct Drawn {
  int64_t batch, heads, key_heads, queries, keys, size, value_size;
  bool merged, causal, by_permute;
  std::optional<double> scale;
  at::Tensor heads_of(const at::Tensor& x, int64_t count, int64_t length, int64_t width) const {
    if (!merged) return x.view({-1, count, length, width});
    const at::Tensor split = x.view({-1, length, count, width});
    return by_permute ? split.permute({0, 2, 1, 3}) : split.transpose(1, 2);
  }
  at::Tensor operator()(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const {
    const at::Tensor y = torch::scaled_dot_product_attention(
        heads_of(q, heads, queries, size), heads_of(k, key_heads, keys, size),
        heads_of(v, key_heads, keys, value_size), {}, 0.0, causal, scale, heads != key_heads);
    return merged ? y.transpose(1, 2).flatten(2) : y;
  }
};

/// Attention over linear layers of inputs [batch, length, 5]; the result is one number a sample.
void expect_attention(const std::string& name, const Drawn& drawn) {
  const int64_t q = drawn.heads * drawn.size, k = drawn.key_heads * drawn.size,
                v = drawn.key_heads * drawn.value_size;
  const int64_t result = drawn.queries * drawn.heads * drawn.value_size;
  const Tensors parameters = {torch::randn({q, 5}), torch::randn({k, 5}), torch::randn({v, 5}),
                              torch::randn({2, result}) / std::sqrt(static_cast<double>(result))};
  const test::Function function = [&](const Tensors& p, const Tensors& x) {
    const at::Tensor y =
        drawn(torch::linear(x[0], p[0]), torch::linear(x[1], p[1]), torch::linear(x[1], p[2]));
    return torch::linear(y.flatten(1), p[3]);
  };
  expect_gradients(
      name, function, parameters,
      {torch::randn({drawn.batch, drawn.queries, 5}), torch::randn({drawn.batch, drawn.keys, 5})},
      LossFunction::mse(), torch::randn({drawn.batch, 2}));
}

TEST(CompiledAttention, OfDrawnSizesHasLibTorchsGradients) {
  std::mt19937_64 random(7);
  const auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  torch::manual_seed(8);
  for (int i = 0; i < 40; ++i) {
    Drawn drawn{};
    drawn.batch = draw(1, 3);
    drawn.key_heads = draw(1, 3);
    drawn.heads = drawn.key_heads * (draw(0, 2) == 0 ? draw(1, 3) : 1);
    const int64_t longest = i % 4 == 0 ? 150 : 20;  // past blocks of queries
    // Queries that see one key alone have no gradient, and LibTorch's rounding in its place.
    drawn.queries = draw(2, longest);
    drawn.keys = draw(0, 1) == 0 ? drawn.queries : draw(2, longest);
    drawn.size = draw(1, 20);
    drawn.value_size = draw(0, 1) == 0 ? drawn.size : draw(1, 20);
    drawn.merged = draw(0, 2) > 0;
    drawn.by_permute = draw(0, 1) == 0;
    drawn.causal = draw(0, 1) == 0;
    if (draw(0, 3) == 0) drawn.scale = 0.37;
    expect_attention("attention " + std::to_string(i), drawn);
  }
}

TEST(CompiledAttention, TakesThreeDimensionsAndHeadsFromOneProduct) {
  torch::manual_seed(9);
  const Tensors parameters = {torch::randn({24, 6}), torch::randn({24}), torch::randn({3, 8})};
  const test::Function parts = [](const Tensors& p, const Tensors& x) {
    const auto qkv = torch::linear(x[0], p[0], p[1]).chunk(3, -1);
    return torch::linear(torch::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], {}, 0.0, true), p[2])
        .mean(-1);
  };
  expect_gradients("three dimensions", parts, parameters, {torch::randn({4, 7, 6})}, LossFunction::mse(),
                   torch::randn({4, 7}));
  test::FunctionNet net(parameters);
  const auto rows = test::capture_function(net, parts, {torch::randn({7, 6})});
  amp::FusedOptimizer optimizer(rows->parameters(), amp::SgdRule{.lr = 0});
  const std::string message = error_of([&] { compile(rows, LossFunction::mse(), optimizer); });
  EXPECT_TRUE(contains(message, "fixed sizes")) << "the samples are the positions: " << message;
  const test::Function heads = [](const Tensors& p, const Tensors& x) {
    const auto qkv = torch::linear(x[0], p[0], p[1]).split(8, 2);
    const auto of = [](const at::Tensor& t) { return t.unflatten(2, {2, 4}).transpose(1, 2); };
    const at::Tensor y = torch::scaled_dot_product_attention(of(qkv[0]), of(qkv[1]), of(qkv[2]));
    return torch::linear(y.transpose(1, 2).contiguous().view({-1, 7, 8}), p[2]).select(1, 2);
  };
  expect_gradients("heads", heads, parameters, {torch::randn({4, 7, 6})}, LossFunction::mse(),
                   torch::randn({4, 3}));
  const test::Function seen_twice = [](const Tensors& p, const Tensors& x) {
    const auto qkv = torch::linear(x[0], p[0], p[1]).split(8, 2);
    const auto of = [](const at::Tensor& t) { return t.unflatten(2, {2, 4}).transpose(1, 2); };
    const at::Tensor q = of(qkv[0]), y = torch::scaled_dot_product_attention(q, q, of(qkv[2]));
    return torch::linear((y + q).transpose(1, 2).flatten(2), p[2]).select(1, -1);
  };
  expect_gradients("read twice", seen_twice, parameters, {torch::randn({4, 7, 6})}, LossFunction::mse(),
                   torch::randn({4, 3}));
}

/// With values that are the identity, the result of attention is its weights after dropout: those that another network draws
/// in the same place of the same step.
TEST(CompiledAttention, DropsTheSameWeightsForwardAndBackward) {
  torch::manual_seed(10);
  constexpr int64_t kQueries = 70, kKeys = 90;
  const Tensors inputs = {torch::randn({2, kQueries, 4}), torch::randn({2, kKeys, 4})};
  const Tensors parameters = {torch::randn({4, 4}), torch::randn({4, 4}), torch::randn({kKeys, 4})};
  const auto attention = [](const Tensors& p, const Tensors& x, const at::Tensor& values) {
    return torch::scaled_dot_product_attention(torch::linear(x[0], p[0]), torch::linear(x[1], p[1]), values,
                                               {}, 0.3);
  };
  const test::Function weights = [&](const Tensors& p, const Tensors& x) { return attention(p, x, x[2]); };
  const test::Function function = [&](const Tensors& p, const Tensors& x) {
    return attention(p, x, torch::linear(x[1], p[2]));
  };
  Tensors with_identity = inputs;
  with_identity.push_back(torch::eye(kKeys).expand({2, kKeys, kKeys}).contiguous());
  test::FunctionNet net(parameters), of_weights({parameters[0], parameters[1]});
  const auto graph = test::capture_function(net, function, inputs),
             shown = test::capture_function(of_weights, weights, with_identity);
  amp::FusedOptimizer optimizer(graph->parameters(), amp::SgdRule{.lr = 0}),
      other(shown->parameters(), amp::SgdRule{.lr = 0});
  EXPECT_TRUE(contains(error_of([&] { compile(graph, LossFunction::mse(), optimizer); }), "dropout_seed"));
  CompiledStep step = compile(graph, LossFunction::mse(), optimizer, {.dropout_seed = 5}),
               view = compile(shown, LossFunction::mse(), other, {.dropout_seed = 5});
  const at::Tensor kept = torch::empty({2, kQueries, kKeys});
  const void* pointers[] = {with_identity[0].const_data_ptr(), with_identity[1].const_data_ptr(),
                            with_identity[2].const_data_ptr()};
  view.forward(pointers, 2, kept.data_ptr<float>());
  const double share = (kept == 0).to(torch::kDouble).mean().item<double>();
  EXPECT_NEAR(share, 0.3, 0.02);  // 12,600 draws: four deviations
  const at::Tensor targets = torch::randn({2, kQueries, kKeys});
  step.step(inputs, targets);

  Tensors wide;
  for (const at::Tensor& one : parameters) wide.push_back(one.to(torch::kDouble).requires_grad_());
  const at::Tensor q = torch::linear(inputs[0].to(torch::kDouble), wide[0]),
                   k = torch::linear(inputs[1].to(torch::kDouble), wide[1]),
                   v = torch::linear(inputs[1].to(torch::kDouble), wide[2]);
  const at::Tensor softmax = torch::softmax(torch::matmul(q, k.transpose(1, 2)) / 2.0, -1);
  const at::Tensor y = torch::matmul(softmax * (kept != 0).to(torch::kDouble) / 0.7, v);
  torch::mse_loss(y, targets.to(torch::kDouble)).backward();
  for (size_t i = 0; i < 3; ++i) {
    const at::Tensor made = step.gradient(graph->parameters()[i]), exact = wide[i].grad();
    EXPECT_LE((made - exact).abs().max().item<double>(), 0x1p-16 * exact.abs().max().item<double>()) << i;
  }
}

/// Masks of each form that is repeated, computed from integers, given as floats, and one by which a query sees nothing.
TEST(CompiledAttention, TakesMasksOfTruthAndOfNumbers) {
  torch::manual_seed(13);
  constexpr int64_t kLength = 9, kWidth = 12, kHeads = 3;
  const Tensors parameters = {torch::randn({3 * kWidth, 5}), torch::randn({2, kWidth})};
  const auto attention = [](const Tensors& p, const Tensors& x, const at::Tensor& mask) {
    const auto qkv = torch::linear(x[0], p[0]).chunk(3, -1);
    const auto heads = [](const at::Tensor& t) {
      return t.unflatten(2, {kHeads, kWidth / kHeads}).transpose(1, 2);
    };
    const at::Tensor y =
        torch::scaled_dot_product_attention(heads(qkv[0]), heads(qkv[1]), heads(qkv[2]), mask);
    return torch::linear(y.transpose(1, 2).flatten(2), p[1]).select(1, 3);
  };
  using Mask = std::function<at::Tensor(const Tensors&)>;
  const at::Tensor floats = torch::randn({4, kHeads, kLength, kLength}),
                   tokens = torch::randint(3, {4, kLength}, at::kLong);
  const std::vector<std::pair<std::string, Mask>> masks = {
      {"padding", [](const Tensors& x) { return x[1].ne(0).unsqueeze(1).unsqueeze(1); }},
      {"expanded",
       [](const Tensors& x) {
         return x[1].ge(1).unsqueeze(1).unsqueeze(1).expand({-1, 1, kLength, -1});
       }},
      {"as floats",
       [](const Tensors& x) {
         return ((1.0 - x[1].gt(0).to(x[0].scalar_type())) * -1e4).view({-1, 1, 1, kLength});
       }},
      {"of numbers", [](const Tensors& x) { return x[2]; }},
      {"of one head", [](const Tensors& x) { return x[2].select(1, 1).unsqueeze(1); }},
  };
  for (const auto& [name, mask] : masks) {
    const test::Function function = [&, m = mask](const Tensors& p, const Tensors& x) {
      return attention(p, x, m(x));
    };
    expect_gradients(name, function, parameters, {torch::randn({4, kLength, 5}), tokens, floats},
                     LossFunction::mse(), torch::randn({4, 2}));
  }
  // A mask that is stored, for every sample and head.
  const at::Tensor stored = torch::randn({kLength, kLength});
  const test::Function shared = [&](const Tensors& p, const Tensors& x) {
    return attention(p, x, stored.to(x[0].scalar_type()));
  };
  expect_gradients("stored", shared, parameters, {torch::randn({4, kLength, 5})}, LossFunction::mse(),
                   torch::randn({4, 2}));
  // Samples without a token: LibTorch gives zeros for their queries.
  at::Tensor none = tokens.clone();
  none[2].zero_();
  const test::Function padded = [&](const Tensors& p, const Tensors& x) {
    return attention(p, x, masks[0].second(x));
  };
  test::FunctionNet net(parameters);
  const auto graph = test::capture_function(net, padded, {torch::randn({4, kLength, 5}), none});
  amp::FusedOptimizer optimizer(graph->parameters(), amp::SgdRule{.lr = 0});
  CompiledStep step = compile(graph, LossFunction::mse(), optimizer);
  const at::Tensor x = torch::randn({4, kLength, 5}), made = torch::full({4, 2}, 7.0F);
  const void* pointers[] = {x.const_data_ptr(), none.const_data_ptr()};
  step.forward(pointers, 4, made.data_ptr<float>());
  EXPECT_TRUE(torch::equal(made[2], torch::zeros({2})));
  EXPECT_TRUE(std::isfinite(step.step({x, none}, torch::randn({4, 2}))));
  EXPECT_TRUE(step.gradient(graph->parameters()[0]).isfinite().all().item<bool>());
}

TEST(CompiledAttention, RefusesMasksWithGradientsByName) {
  const test::Function masked = [](const Tensors& p, const Tensors& x) {
    const at::Tensor y = torch::linear(x[0], p[0]);
    return torch::scaled_dot_product_attention(y, y, y, p[1]);
  };
  test::FunctionNet net({torch::randn({4, 4}), torch::randn({3, 3})});
  const auto graph = test::capture_function(net, masked, {torch::randn({2, 3, 4})});
  amp::FusedOptimizer optimizer(graph->parameters(), amp::SgdRule{.lr = 0});
  const std::string message = error_of([&] { compile(graph, LossFunction::mse(), optimizer); });
  EXPECT_TRUE(contains(message, "a mask without gradients")) << message;
}

TEST(CompiledEmbedding, HasLibTorchsGradientsAndLeavesPaddingAlone) {
  torch::manual_seed(11);
  const Tensors parameters = {torch::randn({9, 6}), torch::randn({4, 6}), torch::randn({2, 6})};
  const at::Tensor tokens = torch::randint(9, {5, 4}, at::kLong);
  for (const int64_t padding : {-1, 3}) {
    const test::Function function = [=](const Tensors& p, const Tensors& x) {
      // Places that are added to all samples, and a table that is the last layer's weight, too.
      const at::Tensor y = torch::tanh(torch::embedding(p[0], x[0], padding) + p[1]);
      return torch::linear(torch::linear(y, p[0]).mean(-1).unsqueeze(-1) * y, p[2]).select(1, 1);
    };
    expect_gradients("padding " + std::to_string(padding), function, parameters, {tokens},
                     LossFunction::mse(), torch::randn({5, 2}));
  }
  const test::Function plain = [](const Tensors& p, const Tensors& x) {
    return torch::linear(torch::embedding(p[0], x[0]), p[2]).select(1, 0);
  };
  test::FunctionNet net(parameters);
  const auto graph = test::capture_function(net, plain, {tokens});
  amp::FusedOptimizer optimizer(graph->parameters(), amp::SgdRule{.lr = 0.1});
  CompiledStep step = compile(graph, LossFunction::mse(), optimizer);
  at::Tensor beyond = tokens.clone();
  beyond[2][1] = 9;
  const std::string message = error_of([&] { step.step(beyond, torch::randn({5, 2})); });
  EXPECT_TRUE(contains(message, "[0, 9), got 9")) << message;
}

TEST(CompiledMoves, ChannelsOfGroupsAreShuffled) {
  torch::manual_seed(14);
  const Tensors parameters = {torch::randn({6, 3, 1, 1}), torch::randn({2, 6}), torch::randn({1, 6, 1, 1})};
  for (const int64_t groups : {1, 2, 3, 6}) {
    const test::Function function = [=](const Tensors& p, const Tensors& x) {
      const at::Tensor y = torch::channel_shuffle(torch::tanh(torch::conv2d(x[0], p[0])), groups);
      return torch::linear((y * p[2]).mean({2, 3}), p[1]);
    };
    expect_gradients("groups " + std::to_string(groups), function, parameters, {torch::randn({4, 3, 5, 4})},
                     LossFunction::mse(), torch::randn({4, 2}), 60);
  }
}

/// Shapes of a value [batch, a, b, c] that change by what is drawn.
TEST(CompiledMoves, OfDrawnOrdersAndPartsHaveLibTorchsGradients) {
  torch::manual_seed(12);
  int taken = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const test::Function function = [&](const Tensors& p, const Tensors& x) {
      std::mt19937_64 random(seed);
      const auto draw = [&](int64_t low, int64_t high) {
        return std::uniform_int_distribution<int64_t>(low, high)(random);
      };
      at::Tensor y = torch::linear(x[0], p[0]).view({-1, 3, 4, 6});
      at::Tensor row = p[2];  // [3, 1, 6]
      const int64_t steps = draw(1, 4);
      for (int64_t i = 0; i < steps; ++i) {
        const int64_t d = draw(1, y.dim() - 1), size = y.size(d);
        switch (draw(0, 6)) {
          case 0: {
            const int64_t other = draw(0, y.dim() - 1);
            y = y.transpose(d, other);
            if (other == 0) y = y.transpose(d, other) * 0.5;  // the batch stays in front
            break;
          }
          case 1: {
            std::vector<int64_t> dims(static_cast<size_t>(y.dim()));
            for (size_t k = 0; k < dims.size(); ++k) dims[k] = static_cast<int64_t>(k);
            std::shuffle(dims.begin() + 1, dims.end(), random);
            y = y.permute(dims);
            break;
          }
          case 2:
            y = y.slice(d, draw(0, size - 1), size, draw(1, 2));
            break;
          case 3:
            y = torch::cat({y, y.narrow(d, 0, draw(1, size)), torch::tanh(y)}, d);
            break;
          case 4:
            if (y.dim() > 2) y = torch::sigmoid(y.select(d, draw(-size, size - 1)));
            break;
          case 5:
            y = y * torch::tanh(y.narrow(d, draw(0, size - 1), 1));
            break;
          default:
            y = y + y.unsqueeze(d).squeeze(d).detach();
            if (y.dim() == 4 && y.sizes().slice(1) == at::IntArrayRef({3, 4, 6})) y = y * row + row;
            break;
        }
      }
      return torch::linear(y.flatten(1).slice(1, 0, 3).contiguous(), p[1]);
    };
    const Tensors parameters = {torch::randn({72, 5}) * 0.4, torch::randn({2, 3}), torch::randn({3, 1, 6})};
    const at::Tensor x = torch::randn({4, 5});
    try {
      function(parameters, {x});
    } catch (const c10::Error&) {
      continue;  // another width at the end, or another number of dimensions
    }
    ++taken;
    expect_gradients("moves " + std::to_string(seed), function, parameters, {x}, LossFunction::mse(),
                     torch::randn({4, 2}));
  }
  EXPECT_GE(taken, 30);
}

}  // namespace
}  // namespace ulp::train
