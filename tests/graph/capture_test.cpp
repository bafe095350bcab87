// Captured models do what the originals do, bit for bit.
#include <sstream>

#include "same.h"
#include "ulp/graph/passes/pass.h"

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

/// A detector: raw maps for the loss in train mode, decoded boxes in eval mode.
struct TwoResultsImpl : nn::Module {
  nn::Linear head = register_module("head", nn::Linear(4, 4));
  nn::Linear aux = register_module("aux", nn::Linear(4, 2));
  std::vector<at::Tensor> forward(const at::Tensor& x) {
    const at::Tensor y = head(x);
    if (is_training()) return {y, aux(torch::dropout(x, 0.5, true))};
    return {(y.sigmoid() * 2 - 0.5).pow(2), y, y.argmax(1)};
  }
};
TORCH_MODULE(TwoResults);

TEST(Capture, ResultsOfAnotherLengthInEachMode) {
  TwoResults model;
  const auto module = check(model, {torch::randn({3, 4})});
  const at::Tensor x = torch::randn({2, 4});
  module->train();
  EXPECT_EQ(module->forward_all({x}).size(), 2);
  module->eval();
  EXPECT_EQ(module->forward_all({x}).size(), 3);
  graph::strip_training(module->graph());
  module->recompile();
  std::ostringstream listing;
  listing << module->graph();
  EXPECT_EQ(listing.str().find("training"), std::string::npos) << listing.str();
  EXPECT_EQ(count(module->graph(), "aten::dropout"), 0);
  model->eval();
  EXPECT_TRUE(torch::equal(module->forward_all({x})[0], model->forward(x)[0]));
}

/// The second head runs in train mode alone, and its field stays undefined in eval mode.
struct WithAuxImpl : nn::Module {
  struct Logits {
    at::Tensor logits, aux;
    ULP_TENSOR_FIELDS(logits, aux)
  };
  nn::Linear head = register_module("head", nn::Linear(4, 2));
  nn::Linear second = register_module("second", nn::Linear(4, 2));
  Logits forward(const at::Tensor& x) { return {head(x), is_training() ? second(x) : at::Tensor()}; }
};
TORCH_MODULE(WithAux);

TEST(Capture, AFieldOfTrainModeAlone) {
  WithAux model;
  const auto module = ulp::capture(model, torch::randn({3, 4}), {.check = {{torch::randn({5, 4})}}});
  const at::Tensor x = torch::randn({2, 4});
  for (const bool training : {true, false}) {
    model->train(training);
    module->train(training);
    const auto want = model->forward(x), got = module->call<WithAuxImpl::Logits>(x);
    EXPECT_TRUE(same_bits(want.logits, got.logits));
    EXPECT_TRUE(same_bits(want.aux, got.aux));
    EXPECT_EQ(got.aux.defined(), training);
  }
}

TEST(Capture, ResultsThatFollowTheBatchAreRefused) {
  struct : nn::Module {
    std::vector<at::Tensor> forward(const at::Tensor& x) { return x.unbind(0); }
  } model;
  EXPECT_ERROR(ulp::capture(model, {torch::randn({2, 4})}), "its length changes between runs");
}

}  // namespace
