// Batch norms and transposed convolutions as ordinary convolutions: the same numbers, and what is refused.
#include "error_of.h"
#include "same.h"
#include "ulp/graph/passes/pass.h"

namespace {

using namespace ulp;
using namespace ulp::graph;
using namespace ulp::test;
namespace nn = torch::nn;

/// In double precision, so that only a wrong tap could show; `op` must be gone.
template <typename Model>
void expect_same(Model model, const at::Tensor& x, PassReport (*pass)(Graph&), const char* op) {
  const at::NoGradGuard no_grad;
  model->to(torch::kDouble);
  model->eval();
  auto captured = ulp::capture(model, {x});
  captured->eval();
  const at::Tensor want = captured->forward(x);
  const PassReport report = pass(captured->graph());
  captured->graph().verify();
  captured->recompile();
  ASSERT_EQ(report.changes.size(), 1U);
  EXPECT_EQ(count(captured->graph(), op), 0);
  for (const auto& node : captured->graph().nodes()) {
    EXPECT_TRUE(!node->is("aten::conv2d") || node->output()->meta) << node->name();
  }
  const at::Tensor got = captured->forward(x);
  ASSERT_EQ(got.sizes(), want.sizes());
  EXPECT_LE((got - want).abs().max().template item<double>(),
            1e-12 * want.abs().max().template item<double>());
}

struct TransposedCase {
  int64_t kernel_h, kernel_w, stride_h, stride_w, padding, out_padding, dilation, groups;
};

TEST(TransposedAsConv, EveryShapeGivesTheSameNumbers) {
  torch::manual_seed(1);
  for (const TransposedCase& c :
       {TransposedCase{2, 2, 2, 2, 0, 0, 1, 1}, TransposedCase{4, 4, 2, 2, 1, 0, 1, 1},
        TransposedCase{3, 3, 2, 2, 1, 1, 1, 1}, TransposedCase{3, 3, 2, 2, 1, 0, 1, 1},
        TransposedCase{3, 5, 1, 1, 1, 0, 1, 1}, TransposedCase{1, 1, 3, 2, 0, 1, 1, 1},
        TransposedCase{5, 2, 3, 1, 0, 0, 1, 2}, TransposedCase{3, 3, 2, 3, 2, 1, 2, 1},
        TransposedCase{4, 3, 3, 4, 0, 2, 1, 4}, TransposedCase{7, 7, 4, 4, 3, 3, 1, 1},
        TransposedCase{2, 2, 5, 5, 0, 3, 1, 1}, TransposedCase{3, 3, 2, 2, 0, 1, 3, 2}}) {
    nn::ConvTranspose2d layer(nn::ConvTranspose2dOptions(4, 8, {c.kernel_h, c.kernel_w})
                                  .stride({c.stride_h, c.stride_w})
                                  .padding(c.padding)
                                  .output_padding(c.out_padding)
                                  .dilation(c.dilation)
                                  .groups(c.groups)
                                  .bias(c.kernel_h % 2 == 0));
    expect_same(nn::Sequential(layer), torch::randn({2, 4, 5, 7}, torch::kDouble), transposed_as_conv,
                "aten::conv_transpose2d");
    if (testing::Test::HasFailure()) FAIL() << c.kernel_h << "x" << c.kernel_w << " stride " << c.stride_h;
  }
}

TEST(TransposedAsConv, SequencesAndVolumesGiveTheSameNumbers) {
  torch::manual_seed(1);
  struct Case {
    int64_t kernel, stride, padding, out_padding, dilation, groups;
  };
  for (const Case& c :
       {Case{2, 2, 0, 0, 1, 1}, Case{4, 2, 1, 0, 1, 2}, Case{3, 2, 1, 1, 1, 1}, Case{3, 1, 1, 0, 1, 4},
        Case{5, 3, 0, 2, 1, 1}, Case{3, 2, 2, 1, 2, 1}, Case{1, 3, 0, 1, 1, 1}}) {
    nn::ConvTranspose1d row(nn::ConvTranspose1dOptions(4, 8, c.kernel)
                                .stride(c.stride)
                                .padding(c.padding)
                                .output_padding(c.out_padding)
                                .dilation(c.dilation)
                                .groups(c.groups));
    expect_same(nn::Sequential(row), torch::randn({2, 4, 7}, torch::kDouble), transposed_as_conv,
                "aten::conv_transpose1d");
    nn::ConvTranspose3d volume(nn::ConvTranspose3dOptions(4, 8, {c.kernel, 2, 3})
                                   .stride({c.stride, 2, 1})
                                   .padding({c.padding, 0, 1})
                                   .output_padding({c.out_padding, 1, 0})
                                   .dilation({c.dilation, 1, 1})
                                   .groups(c.groups)
                                   .bias(c.kernel % 2 == 0));
    expect_same(nn::Sequential(volume), torch::randn({2, 4, 4, 3, 5}, torch::kDouble), transposed_as_conv,
                "aten::conv_transpose3d");
    if (testing::Test::HasFailure()) FAIL() << c.kernel << " stride " << c.stride;
  }
}

TEST(TransposedAsConv, AClampBehindItComesFirst) {
  nn::Sequential model(nn::ConvTranspose2d(nn::ConvTranspose2dOptions(3, 4, 2).stride(2)), nn::ReLU(),
                       nn::Sigmoid());
  model->eval();
  auto captured = ulp::capture(model, {torch::randn({2, 3, 4, 4})});
  transposed_as_conv(captured->graph());
  std::vector<std::string> ops;
  for (const auto& node : captured->graph().nodes()) {
    if (node->kind() == Node::Kind::call) ops.emplace_back(node->op());
  }
  EXPECT_EQ(ops,
            (std::vector<std::string>{"aten::conv2d", "aten::relu", "ulp::depth_to_space", "aten::sigmoid"}));
}

TEST(BatchNormAsConv, ScaleAndShift) {
  torch::manual_seed(2);
  const auto randomized = [](auto norm) {
    const at::NoGradGuard no_grad;
    norm->running_mean.normal_(0, 1);
    norm->running_var.uniform_(0.2, 3);
    if (norm->weight.defined()) norm->weight.uniform_(-2, 2), norm->bias.normal_(0, 1);
    return norm;
  };
  expect_same(nn::Sequential(randomized(nn::BatchNorm1d(5))), torch::randn({2, 5, 7}, torch::kDouble),
              batch_norm_as_conv, "aten::batch_norm");
  expect_same(nn::Sequential(randomized(nn::BatchNorm2d(nn::BatchNorm2dOptions(5).affine(false)))),
              torch::randn({2, 5, 7, 3}, torch::kDouble), batch_norm_as_conv, "aten::batch_norm");
  expect_same(nn::Sequential(randomized(nn::BatchNorm1d(5))), torch::randn({3, 5}, torch::kDouble),
              batch_norm_as_conv, "aten::batch_norm");
  expect_same(nn::Sequential(randomized(nn::BatchNorm3d(5))), torch::randn({2, 5, 3, 4, 2}, torch::kDouble),
              batch_norm_as_conv, "aten::batch_norm");
}

TEST(BatchNormAsConv, SaysWhyNot) {
  const auto reason = [](auto norm, const at::Tensor& x) {
    nn::Sequential model(norm);
    model->eval();
    auto captured = ulp::capture(model, {x});
    const PassReport report = batch_norm_as_conv(captured->graph());
    EXPECT_TRUE(report.changes.empty());
    return report.near_misses.empty() ? "" : report.near_misses[0];
  };
  EXPECT_SAYS(reason(nn::BatchNorm2d(nn::BatchNorm2dOptions(4).track_running_stats(false)),
                     torch::randn({3, 4, 5, 5})),
              "0 (aten::batch_norm) not made a convolution: it normalizes by the batch's own statistics");
}

TEST(StripTraining, AClampOfWhatIsClampedGoes) {
  nn::Sequential model(nn::ReLU6(), nn::ReLU(), nn::Linear(4, 3), nn::ReLU(), nn::ReLU(), nn::ReLU6());
  model->eval();
  auto captured = ulp::capture(model, {torch::randn({2, 4})});
  strip_training(captured->graph());
  EXPECT_EQ(count(captured->graph(), "aten::relu"), 1);
  EXPECT_EQ(count(captured->graph(), "aten::relu6") + count(captured->graph(), "aten::hardtanh"), 2);
}

}  // namespace
