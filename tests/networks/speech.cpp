// A transformer for speech: frames are halved twice by convolutions, LibTorch's own encoder and decoder
// layers have the batch in the middle, and masks come from the lengths of the recordings.
#include "networks.h"

namespace ulp::test::speech_net {
namespace {

using torch::Tensor;
using torch::indexing::None;
using torch::indexing::Slice;
namespace nn = torch::nn;

struct PositionsImpl : nn::Module {
  nn::Dropout dropout{0.1};
  Tensor pe;
  PositionsImpl(int64_t width, int64_t longest) {
    register_module("dropout", dropout);
    pe = torch::zeros({longest, width});
    const auto position = torch::arange(0, longest, torch::kFloat).unsqueeze(1);
    const auto div = torch::exp(torch::arange(0, width, 2).to(torch::kFloat) * (-std::log(10000.0) / width));
    pe.index_put_({Slice(), Slice(0, None, 2)}, torch::sin(position * div));
    pe.index_put_({Slice(), Slice(1, None, 2)}, torch::cos(position * div));
    pe = register_buffer("pe", pe.unsqueeze(0).transpose(0, 1));
  }
  Tensor forward(const Tensor& x) { return dropout(x + pe.index({Slice(None, x.size(0)), Slice()})); }
};
TORCH_MODULE(Positions);

struct SpeechImpl : nn::Module {
  int64_t width;
  nn::Sequential subsample;
  nn::Linear project{nullptr}, ctc{nullptr}, output{nullptr};
  nn::Embedding target{nullptr};
  Positions positions{nullptr};
  nn::TransformerEncoder encoder{nullptr};
  nn::TransformerDecoder decoder{nullptr};

  SpeechImpl(int64_t bands, int64_t dim, int64_t vocab) : width(dim) {
    subsample = register_module(
        "subsample", nn::Sequential(nn::Conv2d(nn::Conv2dOptions(1, 6, 3).stride(2).padding(1)), nn::GELU(),
                                    nn::Conv2d(nn::Conv2dOptions(6, 6, 3).stride(2).padding(1)), nn::GELU()));
    project = register_module("project", nn::Linear(6 * (bands / 4), dim));
    ctc = register_module("ctc", nn::Linear(dim, vocab));
    output = register_module("output", nn::Linear(dim, vocab));
    target = register_module("target", nn::Embedding(vocab, dim));
    positions = register_module("positions", Positions(dim, 32));
    const auto layer =
        nn::TransformerEncoderLayerOptions(dim, 2).dim_feedforward(2 * dim).dropout(0.1).activation(
            torch::kGELU);
    encoder = register_module("encoder", nn::TransformerEncoder(nn::TransformerEncoderOptions(
                                             nn::TransformerEncoderLayer(layer), 1)));
    const auto reader = nn::TransformerDecoderLayerOptions(dim, 2).dim_feedforward(2 * dim).dropout(0.1);
    decoder = register_module("decoder", nn::TransformerDecoder(nn::TransformerDecoderOptions(
                                             nn::TransformerDecoderLayer(reader), 1)));
  }
  std::tuple<Tensor, Tensor> forward(const Tensor& frames, const Tensor& lengths, const Tensor& targets) {
    auto x = subsample->forward(frames.unsqueeze(1));
    x = x.permute({0, 2, 1, 3}).contiguous().view({x.size(0), x.size(2), -1});
    const auto left = torch::div(lengths + 3, 4, "floor");
    const auto padding = torch::arange(x.size(1), lengths.options()).unsqueeze(0) >= left.unsqueeze(1);
    x = positions(project(x).transpose(0, 1) * std::sqrt(static_cast<double>(width)));
    const auto memory = encoder(x, /*src_mask=*/Tensor(), padding);
    const auto now = nn::TransformerImpl::generate_square_subsequent_mask(targets.size(1));
    const auto y =
        decoder(positions(target(targets).transpose(0, 1)), memory, now, Tensor(), Tensor(), padding);
    return {torch::log_softmax(ctc(memory), -1).transpose(0, 1), output(y).transpose(0, 1)};
  }
};
TORCH_MODULE(Speech);

}  // namespace
}  // namespace ulp::test::speech_net

ulp::test::Network ulp::test::speech_transformer() {
  const auto inputs = [](int64_t batch) {
    return std::vector<torch::Tensor>{torch::randn({batch, 24, 16}), torch::randint(9, 25, {batch}),
                                      torch::randint(0, 20, {batch, 5})};
  };
  return {"speech_transformer", [] { return instance(speech_net::Speech(16, 24, 20).ptr()); }, inputs};
}
