// Captured models do what the originals do, bit for bit.
#include "same.h"

namespace {

using namespace ulp;
using namespace ulp::test;
namespace nn = torch::nn;

struct ConvNetImpl : nn::Module {
  ConvNetImpl() {
    conv1 = register_module("conv1", nn::Conv2d(nn::Conv2dOptions(3, 8, 3).padding(1).bias(false)));
    bn1 = register_module("bn1", nn::BatchNorm2d(8));
    conv2 = register_module("conv2", nn::Conv2d(nn::Conv2dOptions(8, 8, 3).stride(2).padding(1)));
    bn2 = register_module("bn2", nn::BatchNorm2d(8));
    drop = register_module("drop", nn::Dropout(0.4));
    fc = register_module("fc", nn::Linear(8 * 16, 10));
  }
  at::Tensor forward(at::Tensor x) {
    x = torch::relu(bn1(conv1(x)));
    at::Tensor y = torch::max_pool2d(x, 2);
    x = bn2(conv2(x));
    x += y;
    x.relu_();
    return fc(drop(x.flatten(1)));
  }
  nn::Conv2d conv1{nullptr}, conv2{nullptr};
  nn::BatchNorm2d bn1{nullptr}, bn2{nullptr};
  nn::Dropout drop{nullptr};
  nn::Linear fc{nullptr};
};
TORCH_MODULE(ConvNet);

TEST(Capture, ConvolutionsBatchNormAndInPlaceOps) {
  ConvNet model;
  check(model, {torch::randn({3, 3, 8, 8})});
}

TEST(Capture, ChannelsLast) {
  ConvNet model;
  auto captured = check(model, {torch::randn({3, 3, 8, 8}).contiguous(at::MemoryFormat::ChannelsLast)});
  EXPECT_TRUE(captured->graph().inputs()[0]->meta->channels_last);
}

TEST(Capture, LeavesModeBuffersAndRandomStateAlone) {
  ConvNet model;
  model->train();
  model->bn1->eval();
  torch::manual_seed(3);
  at::Tensor mean = model->bn2->running_mean.clone(),
             state = at::detail::getDefaultCPUGenerator().get_state();
  ulp::capture(model, {torch::randn({2, 3, 8, 8})});
  EXPECT_TRUE(model->is_training());
  EXPECT_FALSE(model->bn1->is_training());
  EXPECT_TRUE(model->bn2->is_training());
  EXPECT_TRUE(torch::equal(mean, model->bn2->running_mean));
  EXPECT_EQ(model->bn2->num_batches_tracked.item<int64_t>(), 0);
}

TEST(Capture, LstmAndGru) {
  nn::LSTM lstm(nn::LSTMOptions(6, 5).num_layers(2).dropout(0.3).bidirectional(true));
  check(lstm, {torch::randn({7, 3, 6})}, {.batch_dims = {1}});
  nn::LSTM first(nn::LSTMOptions(6, 5).batch_first(true));
  check(first, {torch::randn({3, 7, 6})});
  nn::GRU gru(nn::GRUOptions(6, 5).num_layers(2));
  check(gru, {torch::randn({7, 3, 6})}, {.batch_dims = {1}});
}

TEST(Capture, TransformerEncoderLayer) {
  nn::TransformerEncoderLayer layer(
      nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16).dropout(0.2));
  check(layer, {torch::randn({5, 3, 8})}, {.batch_dims = {1}});
}

TEST(Capture, MultiheadAttention) {
  nn::MultiheadAttention attention(nn::MultiheadAttentionOptions(8, 2).dropout(0.1));
  check(attention, {torch::randn({5, 3, 8}), torch::randn({6, 3, 8}), torch::randn({6, 3, 8})},
        {.batch_dims = {1, 1, 1}});
}

}  // namespace
