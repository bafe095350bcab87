// Captions of images: a convolutional encoder, and an LSTM cell that looks at one place of the image for each
// word and writes its words into a tensor that was made before.
#include "networks.h"

namespace ulp::test::captioning_net {
namespace {

using torch::Tensor;
using torch::indexing::Slice;
namespace nn = torch::nn;

struct EncoderImpl : nn::Module {
  nn::Sequential layers{
      nn::Conv2d(nn::Conv2dOptions(3, 12, 3).stride(2).padding(1)),  nn::BatchNorm2d(12), nn::ReLU(),
      nn::Conv2d(nn::Conv2dOptions(12, 20, 3).stride(2).padding(1)), nn::BatchNorm2d(20), nn::ReLU()};
  nn::AdaptiveAvgPool2d pool{nn::AdaptiveAvgPool2dOptions({3, 3})};
  EncoderImpl() {
    register_module("layers", layers);
    register_module("pool", pool);
  }
  Tensor forward(const Tensor& images) { return pool(layers->forward(images)).permute({0, 2, 3, 1}); }
};
TORCH_MODULE(Encoder);

struct AttentionImpl : nn::Module {
  nn::Linear encoder_att, decoder_att, full_att;
  AttentionImpl(int64_t encoder_dim, int64_t decoder_dim, int64_t dim)
      : encoder_att(encoder_dim, dim), decoder_att(decoder_dim, dim), full_att(dim, 1) {
    register_module("encoder_att", encoder_att);
    register_module("decoder_att", decoder_att);
    register_module("full_att", full_att);
  }
  std::pair<Tensor, Tensor> forward(const Tensor& encoder_out, const Tensor& hidden) {
    const auto att1 = encoder_att(encoder_out), att2 = decoder_att(hidden);
    const auto att = full_att(torch::relu(att1 + att2.unsqueeze(1))).squeeze(2);
    const auto alpha = torch::softmax(att, 1);
    return {(encoder_out * alpha.unsqueeze(2)).sum(1), alpha};
  }
};
TORCH_MODULE(Attention);

struct CaptionerImpl : nn::Module {
  int64_t vocab;
  Encoder encoder{nullptr};
  Attention attention{nullptr};
  nn::Embedding embedding{nullptr};
  nn::LSTMCell decode_step{nullptr};
  nn::Linear init_h{nullptr}, init_c{nullptr}, f_beta{nullptr}, fc{nullptr};

  CaptionerImpl(int64_t words, int64_t embed, int64_t hidden) : vocab(words) {
    encoder = register_module("encoder", Encoder());
    attention = register_module("attention", Attention(20, hidden, 16));
    embedding = register_module("embedding", nn::Embedding(vocab, embed));
    decode_step =
        register_module("decode_step", nn::LSTMCell(nn::LSTMCellOptions(embed + 20, hidden).bias(true)));
    init_h = register_module("init_h", nn::Linear(20, hidden));
    init_c = register_module("init_c", nn::Linear(20, hidden));
    f_beta = register_module("f_beta", nn::Linear(hidden, 20));
    fc = register_module("fc", nn::Linear(hidden, vocab));
    embedding->weight.data().uniform_(-0.1, 0.1);
    fc->bias.data().fill_(0);
  }
  std::tuple<Tensor, Tensor> forward(const Tensor& images, const Tensor& captions) {
    auto features = encoder(images);
    const auto batch = features.size(0), length = captions.size(1);
    features = features.reshape({batch, -1, features.size(3)});
    const auto pixels = features.size(1);
    const auto embeddings = embedding(captions);
    const auto mean = features.mean(1);
    auto h = init_h(mean), c = init_c(mean);
    auto predictions = torch::zeros({batch, length, vocab}).to(features.device());
    auto alphas = torch::zeros({batch, length, pixels}).to(features.device());
    for (int64_t t = 0; t < length; ++t) {
      auto [context, alpha] = attention(features, h);
      context = torch::sigmoid(f_beta(h)) * context;
      const auto input = torch::cat({embeddings.index({Slice(), t, Slice()}), context}, /*dim=*/1);
      std::tie(h, c) = decode_step(input, std::make_tuple(h, c));
      nn::Dropout dropout(0.2);  // anew for each word
      dropout->train(is_training());
      predictions.index_put_({Slice(), t, Slice()}, fc(dropout(h)));
      alphas.index_put_({Slice(), t}, alpha);
    }
    return {predictions, alphas};
  }
};
TORCH_MODULE(Captioner);

}  // namespace
}  // namespace ulp::test::captioning_net

ulp::test::Network ulp::test::captioning() {
  const auto inputs = [](int64_t batch) {
    return std::vector<torch::Tensor>{torch::randn({batch, 3, 16, 16}), torch::randint(0, 30, {batch, 5})};
  };
  return {"captioning", [] { return instance(captioning_net::Captioner(30, 12, 24).ptr()); }, inputs};
}
