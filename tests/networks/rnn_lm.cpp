// A recurrent language model: words by time inside, states that the caller keeps, the decoder's weight that
// of the encoder.
#include "networks.h"

namespace ulp::test::rnn_lm_net {
namespace {

using torch::Tensor;
namespace nn = torch::nn;

struct RnnLmImpl : nn::Module {
  int64_t ntoken, nhid, nlayers;
  nn::Dropout drop;
  nn::Embedding encoder;
  nn::LSTM rnn;
  nn::Linear decoder;

  RnnLmImpl(int64_t tokens, int64_t width, int64_t layers, double dropout = 0.2)
      : ntoken(tokens),
        nhid(width),
        nlayers(layers),
        drop(dropout),
        encoder(tokens, width),
        rnn(nn::LSTMOptions(width, width).num_layers(layers).dropout(dropout)),
        decoder(width, tokens) {
    register_module("drop", drop);
    register_module("encoder", encoder);
    register_module("rnn", rnn);
    register_module("decoder", decoder);
    decoder->weight = encoder->weight;  // tied
    const torch::NoGradGuard no_grad;
    encoder->weight.uniform_(-0.1, 0.1);
    decoder->bias.zero_();
  }
  /// States are [batch, layers, width].
  std::tuple<Tensor, Tensor, Tensor> forward(const Tensor& input, const Tensor& h, const Tensor& c) {
    const auto time_major = input.t();
    auto emb = drop(encoder(time_major));
    const auto state =
        std::make_tuple(h.detach().transpose(0, 1).contiguous(), c.detach().transpose(0, 1).contiguous());
    auto [output, next] = rnn(emb, state);
    output = drop(output);
    auto decoded = decoder(output.view({output.size(0) * output.size(1), output.size(2)}));
    decoded = decoded.view({output.size(0), output.size(1), ntoken});
    return {torch::log_softmax(decoded, -1).transpose(0, 1), std::get<0>(next).transpose(0, 1),
            std::get<1>(next).transpose(0, 1)};
  }
};
TORCH_MODULE(RnnLm);

}  // namespace
}  // namespace ulp::test::rnn_lm_net

ulp::test::Network ulp::test::rnn_lm() {
  const auto inputs = [](int64_t batch) {
    return std::vector<torch::Tensor>{torch::randint(0, 40, {batch, 8}), torch::randn({batch, 2, 24}) * 0.1,
                                      torch::randn({batch, 2, 24}) * 0.1};
  };
  return {"rnn_lm", [] { return instance(rnn_lm_net::RnnLm(40, 24, 2).ptr()); }, inputs};
}
