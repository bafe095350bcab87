// The documented op table: generated from the built-in policies, and every line of it really run.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "op_samples.h"
#include "ulp/amp/autocast/autocast.h"
#include "ulp/amp/autocast/explain.h"
#include "ulp/amp/autocast/op_policy.h"
#include "ulp/base/error.h"
#include "ulp/report/table.h"

namespace {

using ulp::amp::Autocast;
using ulp::amp::Cast;
using ulp::amp::OpPolicy;
using ulp::test::Inputs;

// Kernels that LibTorch has for CUDA or oneDNN's RNN alone, and those for named tensors, a prototype.
const std::set<std::string> kNotOnThisDevice = {"aten::_scaled_dot_product_flash_attention",
                                                "aten::_thnn_fused_gru_cell",
                                                "aten::_thnn_fused_lstm_cell",
                                                "aten::cudnn_convolution",
                                                "aten::cudnn_convolution_transpose",
                                                "aten::index_copy.dimname",
                                                "aten::mkldnn_rnn_layer",
                                                "aten::prod.dim_Dimname"};

Inputs inputs_for(Cast cast) {
  if (cast == Cast::lower_precision) return Inputs::fp32;
  return cast == Cast::widest ? Inputs::mixed : Inputs::bf16;
}

// What a listed op computed in, by the call that autocast made in turn.
at::ScalarType computed(const std::string& op, Cast cast) {
  const auto arguments = ulp::test::sample_arguments(op, inputs_for(cast));
  const auto why = ulp::amp::explain([&] { ulp::test::call(op, arguments); });
  EXPECT_EQ(why.rows.size(), 1u);
  EXPECT_EQ(why.rows.at(0).op, op);
  const bool converts_as_it_reads = cast == Cast::fp32_set_opt_dtype;
  EXPECT_GE(why.rows.at(0).casts, converts_as_it_reads ? 0 : 1);
  return why.rows.at(0).computed;
}

void check_all(const OpPolicy& policy) {
  const torch::NoGradGuard no_grad;
  int ran = 0;
  for (const auto& [op, cast] : policy.rules()) {
    SCOPED_TRACE(op);
    if (kNotOnThisDevice.contains(op)) continue;
    if (cast == Cast::refuse) {
      const auto arguments = ulp::test::sample_arguments(op, Inputs::fp32);
      EXPECT_THROW(ulp::test::call(op, arguments), ulp::Error);
      continue;
    }
    try {
      const auto wanted = cast == Cast::lower_precision ? torch::kBFloat16 : torch::kFloat;
      EXPECT_EQ(computed(op, cast), wanted);
      ++ran;
    } catch (const std::exception& error) {
      ADD_FAILURE() << std::string(error.what()).substr(0, 300);
    }
  }
  EXPECT_GT(ran, 100);
}

TEST(OpTable, EveryOpOfTheCudaListsComputesInTheListedPrecision) {
  const Autocast guard(torch::kCPU, torch::kBFloat16, OpPolicy::cuda_like());
  check_all(OpPolicy::cuda_like());
}

TEST(OpTable, LibTorchComputesInWhatItsCpuListsSay) {
  const Autocast guard(torch::kCPU, torch::kBFloat16);
  check_all(OpPolicy::libtorch_cpu());
}

// Regenerate with ULP_UPDATE_DOCS=1.
TEST(OpTable, TheDocumentationShowsThePolicies) {
  const auto path = std::filesystem::path(ULP_SOURCE_DIR) / "docs/autocast.md";
  const std::string mark = "<!-- generated from the policies; everything below this line is a test's -->\n\n";
  std::stringstream content;
  content << std::ifstream(path).rdbuf();
  const std::string text = content.str();
  const size_t at = text.find(mark);
  ASSERT_NE(at, std::string::npos) << path;
  const std::string wanted = ulp::report::to_markdown(ulp::amp::op_table());
  if (std::getenv("ULP_UPDATE_DOCS")) {
    std::ofstream(path) << text.substr(0, at + mark.size()) << wanted;
    return;
  }
  EXPECT_EQ(text.substr(at + mark.size()), wanted)
      << "regenerate with ULP_UPDATE_DOCS=1 test_amp --gtest_filter='OpTable.*'";
}

}  // namespace
