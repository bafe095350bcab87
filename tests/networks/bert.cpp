// A text encoder of LibTorch's own TransformerEncoder, time first, with a mask of padding, pooled by
// averaging.
#include "networks.h"

namespace ulp::test::bert_net {
namespace {

using torch::Tensor;
namespace nn = torch::nn;

struct PositionalEncodingImpl : nn::Module {
  Tensor pe;
  nn::Dropout dropout{0.1};

  PositionalEncodingImpl(int64_t dim, int64_t longest) {
    using namespace torch::indexing;
    auto position = torch::arange(longest).unsqueeze(1);
    auto div_term = torch::exp(torch::arange(0, dim, 2) * (-std::log(10000.0) / static_cast<double>(dim)));
    auto table = torch::zeros({longest, 1, dim});
    table.index_put_({Slice(), 0, Slice(0, None, 2)}, torch::sin(position * div_term));
    table.index_put_({Slice(), 0, Slice(1, None, 2)}, torch::cos(position * div_term));
    pe = register_buffer("pe", table);
    register_module("dropout", dropout);
  }
  Tensor forward(const Tensor& x) {
    return dropout(x + pe.index({torch::indexing::Slice(torch::indexing::None, x.size(0))}));
  }
};
TORCH_MODULE(PositionalEncoding);

struct TextEncoderImpl : nn::Module {
  int64_t width;
  nn::Embedding embedding{nullptr};
  PositionalEncoding positions{nullptr};
  nn::TransformerEncoder encoder{nullptr};
  nn::Linear classifier{nullptr};

  TextEncoderImpl(int64_t words, int64_t dim, int64_t heads, int64_t layers, int64_t classes) : width(dim) {
    embedding = register_module("embedding", nn::Embedding(words, dim));
    positions = register_module("positions", PositionalEncoding(dim, 32));
    nn::TransformerEncoderLayer layer(nn::TransformerEncoderLayerOptions(dim, heads)
                                          .dim_feedforward(2 * dim)
                                          .dropout(0.1)
                                          .activation(torch::kGELU));
    encoder =
        register_module("encoder", nn::TransformerEncoder(nn::TransformerEncoderOptions(layer, layers)));
    classifier = register_module("classifier", nn::Linear(dim, classes));
  }
  Tensor forward(const Tensor& tokens) {
    const Tensor padding = tokens.eq(0);
    Tensor x = embedding(tokens.transpose(0, 1)) * std::sqrt(static_cast<double>(width));
    x = encoder(positions(x), /*src_mask=*/Tensor(), padding);
    const Tensor kept = padding.logical_not().to(torch::kFloat).transpose(0, 1).unsqueeze(-1);
    x = (x * kept).sum(0) / kept.sum(0).clamp_min(1);
    return classifier(x);
  }
};
TORCH_MODULE(TextEncoder);

}  // namespace
}  // namespace ulp::test::bert_net

ulp::test::Network ulp::test::bert() {
  const auto make = [] { return instance(bert_net::TextEncoder(60, 32, 4, 2, 5).ptr()); };
  const auto inputs = [](int64_t batch) {
    torch::Tensor tokens = torch::randint(1, 60, {batch, 11});
    tokens[0].narrow(0, 7, 4).zero_();
    return std::vector<torch::Tensor>{tokens};
  };
  return {"bert", make, inputs};
}
