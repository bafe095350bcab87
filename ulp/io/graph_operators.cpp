#include "ulp/io/graph_operators.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "ulp/base/error.h"
#include "ulp/io/size_json.h"

namespace ulp::io {

namespace {

using std::string_view_literals::operator""sv;

/// What captures find of the names that would be refused, as these check what they are given: what LibTorch's
/// C++ frontend and traced files call, and what is in the Core ATen opset.
constexpr std::array kChecked = {"__and__"sv,
                                 "__lshift__"sv,
                                 "__or__"sv,
                                 "__rshift__"sv,
                                 "__xor__"sv,
                                 "_adaptive_avg_pool2d"sv,
                                 "_adaptive_avg_pool3d"sv,
                                 "_cdist_forward"sv,
                                 "_convolution"sv,
                                 "_fft_c2c"sv,
                                 "_fft_c2r"sv,
                                 "_fft_r2c"sv,
                                 "_local_scalar_dense"sv,
                                 "_log_softmax"sv,
                                 "_pad_enum"sv,
                                 "_pdist_forward"sv,
                                 "_softmax"sv,
                                 "_to_copy"sv,
                                 "_unique2"sv,
                                 "_unsafe_view"sv,
                                 "_upsample_bicubic2d_aa"sv,
                                 "_upsample_bilinear2d_aa"sv,
                                 "_upsample_lanczos2d_aa"sv,
                                 "_upsample_nearest_exact1d"sv,
                                 "_upsample_nearest_exact2d"sv,
                                 "_upsample_nearest_exact3d"sv,
                                 "unsafe_chunk"sv,
                                 "unsafe_split"sv,
                                 "unsafe_split_with_sizes"sv};
/// '_' begins the names of what other operators call when they have checked.
/// Cells of quantized layers trust the tensors of their packed weights.
constexpr std::array kRefusedStarts = {"_"sv,       "batch_norm_"sv, "cudnn_"sv,    "fbgemm_"sv,
                                       "miopen_"sv, "mkldnn_"sv,     "quantized_"sv};
/// Derivatives trust the indices and statistics of the forward pass, and sparse layouts theirs. Files,
/// streams and the memory of other tensors are none of a model's. Orthogonal polynomials and zeta functions
/// loop for as long as their numbers say, which may be for ever.
constexpr std::array kRefusedParts = {"backward"sv,   "from_file"sv,     "nested"sv, "polygamma"sv,
                                      "polynomial"sv, "record_stream"sv, "resize"sv, "sparse"sv,
                                      "unsafe"sv,     "zeta"sv};
/// These trust labels, lengths, types or the sizes of statistics, loop for as long as a number says, or give
/// a tensor the memory of another one.
constexpr std::array kRefused = {"choose_qparams_optimized"sv,
                                 "ctc_loss"sv,
                                 "native_batch_norm"sv,
                                 "promote_types"sv,
                                 "segment_reduce"sv,
                                 "set"sv,
                                 "set_"sv,
                                 "set_data"sv};

bool may_call(std::string_view name) {
  const auto is = [&](std::string_view other) { return name == other; };
  const auto begins = [&](std::string_view start) { return name.starts_with(start); };
  const auto holds = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
  if (std::ranges::any_of(kChecked, is)) return true;
  return std::ranges::none_of(kRefusedStarts, begins) && std::ranges::none_of(kRefusedParts, holds) &&
         std::ranges::none_of(kRefused, is);
}

}  // namespace

void check_operator(const std::string& target) {
  constexpr std::string_view kAten = "aten::";
  if (target.starts_with("ulp::")) return;
  if (!target.starts_with(kAten)) fail(kGraphFile, "expected an operator of aten or ulp, got '", target, "'");
  if (!may_call(std::string_view(target).substr(kAten.size(), target.find('.') - kAten.size())))
    fail(kGraphFile, "expected an operator that checks what it is given and only computes, got '", target,
         "'");
}

}  // namespace ulp::io
