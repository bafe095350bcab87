// Time series: a temporal convolutional network that cuts its padding off, and a forecast that normalises
// every series by its own mean and deviation.
#include "networks.h"

namespace ulp::test::time_series_net {
namespace {

using torch::Tensor;
using torch::indexing::None;
using torch::indexing::Slice;
namespace nn = torch::nn;

struct TemporalBlockImpl : nn::Module {
  int64_t chomp;
  nn::Conv1d conv1{nullptr}, conv2{nullptr}, downsample{nullptr};
  nn::Dropout dropout{0.2};

  TemporalBlockImpl(int64_t in, int64_t out, int64_t kernel, int64_t dilation)
      : chomp((kernel - 1) * dilation) {
    const auto options = [&](int64_t from) {
      return nn::Conv1dOptions(from, out, kernel).padding(chomp).dilation(dilation);
    };
    conv1 = register_module("conv1", nn::Conv1d(options(in)));
    conv2 = register_module("conv2", nn::Conv1d(options(out)));
    if (in != out) downsample = register_module("downsample", nn::Conv1d(in, out, 1));
    register_module("dropout", dropout);
  }
  Tensor cut(const Tensor& x) const { return x.index({Slice(), Slice(), Slice(None, -chomp)}).contiguous(); }
  Tensor forward(const Tensor& x) {
    auto y = dropout(torch::relu(cut(conv1(x))));
    y = dropout(torch::relu(cut(conv2(y))));
    return torch::relu(y + (downsample.is_empty() ? x : downsample(x)));
  }
};
TORCH_MODULE(TemporalBlock);

struct TcnImpl : nn::Module {
  nn::Sequential network;
  nn::Linear head{nullptr};

  TcnImpl(int64_t inputs, const std::vector<int64_t>& channels, int64_t outputs) {
    int64_t in = inputs;
    for (size_t i = 0; i < channels.size(); in = channels[i++])
      network->push_back(TemporalBlock(in, channels[i], 3, int64_t{1} << i));
    register_module("network", network);
    head = register_module("head", nn::Linear(in, outputs));
  }
  Tensor forward(const Tensor& x) { return head(network->forward(x).index({Slice(), Slice(), -1})); }
};
TORCH_MODULE(Tcn);

struct ForecastImpl : nn::Module {
  int64_t kernel = 5;
  nn::Linear seasonal{nullptr}, trend{nullptr};
  Tensor gamma, beta;

  ForecastImpl(int64_t length, int64_t horizon, int64_t series) {
    seasonal = register_module("seasonal", nn::Linear(length, horizon));
    trend = register_module("trend", nn::Linear(length, horizon));
    gamma = register_parameter("gamma", torch::ones(series));
    beta = register_parameter("beta", torch::zeros(series));
  }
  Tensor moving_average(const Tensor& x) const {
    auto front = x.index({Slice(), Slice(0, 1)}).repeat({1, (kernel - 1) / 2, 1});
    auto end = x.index({Slice(), Slice(-1, None)}).repeat({1, (kernel - 1) / 2, 1});
    auto padded = torch::cat({front, x, end}, 1);
    return torch::avg_pool1d(padded.permute({0, 2, 1}), kernel, 1).permute({0, 2, 1});
  }
  Tensor forward(Tensor x) {  // (batch, time, series)
    const auto mean = x.mean(1, /*keepdim=*/true).detach();
    const auto deviation =
        torch::sqrt(torch::var(x, 1, /*unbiased=*/false, /*keepdim=*/true) + 1e-5).detach();
    x = (x - mean) / deviation * gamma + beta;
    const auto slow = moving_average(x);
    auto y = seasonal((x - slow).transpose(1, 2)) + trend(slow.transpose(1, 2));
    y = (y.transpose(1, 2) - beta) / (gamma + 1e-10);
    return y * deviation + mean;
  }
};
TORCH_MODULE(Forecast);

}  // namespace
}  // namespace ulp::test::time_series_net

ulp::test::Network ulp::test::tcn() {
  const auto make = [] {
    return instance(time_series_net::Tcn(4, std::vector<int64_t>{12, 12, 16}, 3).ptr());
  };
  return {"tcn", make, normal({{4, 40}})};
}

ulp::test::Network ulp::test::forecast() {
  const auto make = [] { return instance(time_series_net::Forecast(24, 12, 5).ptr()); };
  return {"forecast", make, normal({{24, 5}})};
}
