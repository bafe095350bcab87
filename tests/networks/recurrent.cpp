// Recurrent networks: an LSTM cell in a loop of the user's own, and a GRU with additive attention over words.
#include "networks.h"

namespace ulp::test::recurrent_net {
namespace {

using torch::Tensor;
namespace nn = torch::nn;

struct CellLoopImpl : nn::Module {
  int64_t hidden;
  nn::LSTMCell cell1{nullptr}, cell2{nullptr};
  nn::Linear out{nullptr};

  CellLoopImpl(int64_t features, int64_t hidden_size) : hidden(hidden_size) {
    cell1 = register_module("cell1", nn::LSTMCell(features, hidden));
    cell2 = register_module("cell2", nn::LSTMCell(hidden, hidden));
    out = register_module("out", nn::Linear(hidden, 1));
  }
  Tensor forward(const Tensor& x) {
    using torch::indexing::Slice;
    auto h1 = torch::zeros({x.size(0), hidden}, x.options()), c1 = torch::zeros_like(h1);
    auto h2 = torch::zeros_like(h1), c2 = torch::zeros_like(h1);
    std::vector<Tensor> outputs;
    for (int64_t t = 0; t < x.size(1); ++t) {
      std::tie(h1, c1) = cell1(x.index({Slice(), t}), std::make_tuple(h1, c1));
      std::tie(h2, c2) = cell2(h1, std::make_tuple(h2, c2));
      outputs.push_back(out(h2));
    }
    return torch::stack(outputs, 1).squeeze(2);
  }
};
TORCH_MODULE(CellLoop);

struct AttentionGruImpl : nn::Module {
  nn::Embedding embedding{nullptr};
  nn::GRU gru{nullptr};
  nn::Linear attention{nullptr}, context{nullptr}, classifier{nullptr};
  nn::Dropout dropout{0.2};

  AttentionGruImpl(int64_t words, int64_t width, int64_t hidden, int64_t classes) {
    embedding =
        register_module("embedding", nn::Embedding(nn::EmbeddingOptions(words, width).padding_idx(0)));
    gru =
        register_module("gru", nn::GRU(nn::GRUOptions(width, hidden).batch_first(true).bidirectional(true)));
    attention = register_module("attention", nn::Linear(2 * hidden, hidden));
    context = register_module("context", nn::Linear(nn::LinearOptions(hidden, 1).bias(false)));
    classifier = register_module("classifier", nn::Linear(2 * hidden, classes));
    register_module("dropout", dropout);
  }
  std::tuple<Tensor, Tensor> forward(const Tensor& tokens) {
    auto states = std::get<0>(gru(dropout(embedding(tokens))));
    auto scores = context(torch::tanh(attention(states))).squeeze(-1);
    scores = scores.masked_fill(tokens == 0, -1e9);
    auto weights = torch::softmax(scores, 1);
    auto summary = torch::bmm(weights.unsqueeze(1), states).squeeze(1);
    return {classifier(dropout(summary)), weights};
  }
};
TORCH_MODULE(AttentionGru);

}  // namespace
}  // namespace ulp::test::recurrent_net

ulp::test::Network ulp::test::lstm_cells() {
  return {"lstm_cells", [] { return instance(recurrent_net::CellLoop(6, 24).ptr()); }, normal({{7, 6}})};
}

ulp::test::Network ulp::test::gru_attention() {
  const auto make = [] { return instance(recurrent_net::AttentionGru(50, 16, 20, 4).ptr()); };
  return {"gru_attention", make, ids(50, {12})};
}
