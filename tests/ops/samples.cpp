#include "samples.h"

namespace ulp::test {

at::Tensor SampleLayer::weight(std::vector<int64_t> sizes) {
  if (next_ == made_.size())
    made_.push_back(register_parameter("weight" + std::to_string(next_), torch::randn(sizes)));
  return made_[next_++];
}

at::Tensor SampleLayer::statistics(std::vector<int64_t> sizes) {
  if (next_ == made_.size())
    made_.push_back(register_buffer("statistics" + std::to_string(next_), torch::rand(sizes) + 0.5));
  return made_[next_++];
}

at::Tensor SampleLayer::indices(std::vector<int64_t> sizes, int64_t below) {
  if (next_ == made_.size()) {
    int64_t count = 1;
    for (const int64_t size : sizes) count *= size;
    made_.push_back(register_buffer("indices" + std::to_string(next_),
                                    (torch::arange(count, torch::kLong) * 5 % below).view(sizes)));
  }
  return made_[next_++];
}

namespace {

using at::Tensor;
using std::get;

// l: the layer, x: the input.
#define ULP_TRY(op, reach, given, ...)                                                                     \
  Sample {                                                                                                 \
    "aten::" op, Reach::reach, Given::given, #__VA_ARGS__, [](SampleLayer& l, const Tensor& x) -> Tensor { \
      static_cast<void>(l);                                                                                \
      return __VA_ARGS__;                                                                                  \
    }                                                                                                      \
  }
#define ULP_OP(op, given, ...) ULP_TRY(op, directly, given, __VA_ARGS__)
#define ULP_IN(op, given, ...) ULP_TRY(op, inside, given, __VA_ARGS__)
#define ULP_EXPORTED(op, given, ...) ULP_TRY(op, exported, given, __VA_ARGS__)

/// With running statistics, which the op would write to in train mode.
Tensor norm_with_statistics(SampleLayer& l, const Tensor& x) {
  Tensor mean = l.statistics({4}), variance = l.statistics({4});
  return get<0>(at::_native_batch_norm_legit(x, l.weight({4}), {}, mean, variance, false, 0.1, 1e-5));
}

Tensor angle_of(const Tensor& y, const Tensor& x) {
  Tensor out = at::empty_like(x);
  return at::atan2_out(out, y, x);
}

constexpr Sample kSamples[] = {
    // Layers.
    ULP_OP("convolution", image,
           at::convolution(x, l.weight({4, 4, 3, 3}), {}, {1, 1}, {1, 1}, {1, 1}, false, {0, 0}, 1)),
    ULP_IN("convolution", sequence, at::conv1d(x, l.weight({4, 5, 3}), {}, 1, 1)),
    ULP_IN("convolution", image, at::conv2d(x, l.weight({4, 4, 3, 3}), l.weight({4}), 1, 1)),
    ULP_IN("convolution", image, at::conv2d(x, l.weight({4, 1, 3, 3}), {}, 2, 1, 1, 4)),
    ULP_IN("convolution", volume, at::conv3d(x, l.weight({2, 2, 3, 3, 3}), {}, 1, 1)),
    ULP_IN("convolution", sequence, at::conv_transpose1d(x, l.weight({5, 4, 2}), {}, 2)),
    ULP_IN("convolution", image, at::conv_transpose2d(x, l.weight({4, 4, 2, 2}), {}, 2)),
    ULP_OP("addmm", rows, at::addmm(l.weight({4}), x, l.weight({6, 4}))),
    ULP_IN("addmm", rows, at::linear(x, l.weight({4, 6}), l.weight({4}))),
    ULP_OP("mm", rows, at::mm(x, l.weight({6, 4}))),
    ULP_IN("mm", rows, at::linear(x, l.weight({4, 6}))),
    ULP_OP("bmm", sequence, at::bmm(x, x.transpose(1, 2))),
    ULP_IN("bmm", sequence, at::matmul(x, x.transpose(1, 2))),
    ULP_OP("embedding", ids, at::embedding(l.weight({6, 4}), x)),
    ULP_OP("_embedding_bag", ids,
           get<0>(at::_embedding_bag(l.weight({6, 4}), x.flatten(), at::arange(x.size(0)) * 5))),
    ULP_IN("_embedding_bag", ids,
           get<0>(at::embedding_bag(l.weight({6, 4}), x.flatten(), at::arange(x.size(0)) * 5))),
    ULP_OP("native_layer_norm", sequence,
           get<0>(at::native_layer_norm(x, {6}, l.weight({6}), l.weight({6}), 1e-5))),
    ULP_IN("native_layer_norm", sequence, at::layer_norm(x, {6}, l.weight({6}), l.weight({6}))),
    ULP_OP("native_group_norm", image,
           get<0>(at::native_group_norm(x, l.weight({4}), l.weight({4}), x.size(0), 4, 36, 2, 1e-5))),
    ULP_IN("native_group_norm", image, at::group_norm(x, 2, l.weight({4}), l.weight({4}))),
    ULP_OP("_native_batch_norm_legit", image, norm_with_statistics(l, x)),
    ULP_OP("_native_batch_norm_legit_no_training", image,
           get<0>(at::_native_batch_norm_legit_no_training(x, l.weight({4}), l.weight({4}), l.statistics({4}),
                                                           l.statistics({4}), 0.1, 1e-5))),
    ULP_EXPORTED("_native_batch_norm_legit_no_training", image,
                 at::batch_norm(x, l.weight({4}), l.weight({4}), l.statistics({4}), l.statistics({4}), false,
                                0.1, 1e-5, true)),
    ULP_OP("_native_batch_norm_legit.no_stats", image,
           get<0>(at::_native_batch_norm_legit(x, {}, {}, true, 0.1, 1e-5))),
    ULP_EXPORTED("_native_batch_norm_legit.no_stats", image,
                 at::instance_norm(x, {}, {}, {}, {}, true, 0.1, 1e-5, true)),
    ULP_OP("native_dropout", rows, get<0>(at::native_dropout(x, 0.5, true))),
    ULP_EXPORTED("native_dropout", rows, at::dropout(x, 0.5, l.is_training())),
    // Pooling and resizing.
    ULP_OP("avg_pool1d", sequence, at::avg_pool1d(x, 2)),
    ULP_OP("adaptive_avg_pool1d", sequence, at::adaptive_avg_pool1d(x, 2)),
    ULP_OP("avg_pool2d", image, at::avg_pool2d(x, 2)),
    ULP_OP("avg_pool3d", volume, at::avg_pool3d(x, 2)),
    ULP_OP("_adaptive_avg_pool2d", image, at::_adaptive_avg_pool2d(x, {2, 3})),
    ULP_IN("_adaptive_avg_pool2d", image, at::adaptive_avg_pool2d(x, {2, 3})),
    ULP_IN("_adaptive_avg_pool2d", image, at::adaptive_avg_pool2d(x, {4, 5})),
    ULP_OP("_adaptive_avg_pool3d", volume, at::_adaptive_avg_pool3d(x, {2, 2, 2})),
    ULP_IN("_adaptive_avg_pool3d", volume, at::adaptive_avg_pool3d(x, {2, 2, 2})),
    ULP_OP("max_pool2d_with_indices", image, get<0>(at::max_pool2d_with_indices(x, 2))),
    ULP_IN("max_pool2d_with_indices", image, at::max_pool2d(x, 2)),
    ULP_EXPORTED("max_pool2d_with_indices", sequence, at::max_pool1d(x, 2)),
    ULP_OP("max_pool3d_with_indices", volume, get<0>(at::max_pool3d_with_indices(x, 2))),
    ULP_IN("max_pool3d_with_indices", volume, at::max_pool3d(x, 2)),
    ULP_OP("upsample_bilinear2d.vec", image,
           at::upsample_bilinear2d(x, at::OptionalIntArrayRef({12, 12}), false, std::nullopt)),
    ULP_EXPORTED("upsample_bilinear2d.vec", image, at::upsample_bilinear2d(x, {12, 12}, false)),
    ULP_OP("upsample_nearest2d.vec", image,
           at::upsample_nearest2d(x, at::OptionalIntArrayRef({12, 12}), std::nullopt)),
    ULP_EXPORTED("upsample_nearest2d.vec", image, at::upsample_nearest2d(x, {12, 12})),
    ULP_OP("grid_sampler_2d", image,
           at::grid_sampler_2d(x, x.narrow(1, 0, 2).permute({0, 2, 3, 1}), 0, 0, false)),
    // Activations.
    ULP_OP("relu", rows, at::relu(x)),
    ULP_OP("gelu", rows, at::gelu(x)),
    ULP_OP("sigmoid", rows, at::sigmoid(x)),
    ULP_OP("tanh", rows, at::tanh(x)),
    ULP_OP("elu", rows, at::elu(x)),
    ULP_OP("hardtanh", rows, at::hardtanh(x, 0, 6)),
    ULP_OP("hardtanh", rows, at::hardtanh(x)),
    ULP_OP("leaky_relu", rows, at::leaky_relu(x)),
    ULP_OP("_softmax", rows, at::_softmax(x, -1, false)),
    ULP_IN("_softmax", rows, at::softmax(x, -1)),
    ULP_IN("_softmax", image, at::softmax(x, 1)),
    ULP_OP("_log_softmax", rows, at::_log_softmax(x, -1, false)),
    ULP_IN("_log_softmax", rows, at::log_softmax(x, -1)),
    // Arithmetic element by element.
    ULP_OP("add.Tensor", rows, at::add(x, x.square())),
    ULP_OP("add.Scalar", rows, at::add(x, 0.5, 2)),
    ULP_OP("sub.Tensor", rows, at::sub(x, x.square())),
    ULP_OP("sub.Scalar", rows, at::sub(x, 0.5)),
    ULP_OP("mul.Tensor", rows, at::mul(x, x + 1)),
    ULP_OP("mul.Scalar", rows, at::mul(x, 0.5)),
    ULP_OP("div.Tensor", rows, at::div(x, x.abs() + 1)),
    ULP_OP("div.Scalar", rows, at::div(x, 3)),
    ULP_OP("div.Tensor_mode", rows, at::div(x, x.abs() + 1, "floor")),
    ULP_OP("div.Scalar_mode", rows, at::div(x, 0.7, "trunc")),
    ULP_OP("fmod.Tensor", rows, at::fmod(x, x.abs() + 1)),
    ULP_OP("fmod.Scalar", rows, at::fmod(x, 0.7)),
    ULP_OP("remainder.Tensor", rows, at::remainder(x, x.abs() + 1)),
    ULP_OP("remainder.Scalar", rows, at::remainder(x, 0.7)),
    ULP_OP("pow.Tensor_Scalar", rows, at::pow(x, 2)),
    ULP_OP("pow.Tensor_Tensor", rows, at::pow(x.abs() + 1, x)),
    ULP_OP("pow.Scalar", rows, at::pow(2, x)),
    ULP_OP("maximum", rows, at::maximum(x, -x)),
    ULP_OP("minimum", rows, at::minimum(x, -x)),
    ULP_OP("clamp", rows, at::clamp(x, -1, 1)),
    ULP_OP("clamp.Tensor", rows, at::clamp(x, x - 1, x * 0.5)),
    ULP_OP("where.self", rows, at::where(x > 0, x, x * 0.5)),
    ULP_OP("abs", rows, at::abs(x)),
    ULP_OP("neg", rows, at::neg(x)),
    ULP_OP("sign", rows, at::sign(x)),
    ULP_OP("reciprocal", rows, at::reciprocal(x.abs() + 1)),
    ULP_OP("sqrt", rows, at::sqrt(x.abs() + 1)),
    ULP_OP("rsqrt", rows, at::rsqrt(x.abs() + 1)),
    ULP_OP("exp", rows, at::exp(x)),
    ULP_OP("expm1", rows, at::expm1(x)),
    ULP_OP("log", rows, at::log(x.abs() + 1)),
    ULP_OP("log10", rows, at::log10(x.abs() + 1)),
    ULP_OP("log1p", rows, at::log1p(x.abs())),
    ULP_OP("log2", rows, at::log2(x.abs() + 1)),
    ULP_OP("sin", rows, at::sin(x)),
    ULP_OP("cos", rows, at::cos(x)),
    ULP_OP("tan", rows, at::tan(x * 0.1)),
    ULP_OP("asin", rows, at::asin(x * 0.1)),
    ULP_OP("acos", rows, at::acos(x * 0.1)),
    ULP_OP("atan", rows, at::atan(x)),
    ULP_OP("atan2", rows, at::atan2(x, x.abs() + 1)),
    ULP_OP("sinh", rows, at::sinh(x)),
    ULP_OP("cosh", rows, at::cosh(x)),
    ULP_OP("asinh", rows, at::asinh(x)),
    ULP_OP("acosh", rows, at::acosh(x.abs() + 1.5)),
    ULP_OP("atanh", rows, at::atanh(x * 0.1)),
    ULP_OP("erf", rows, at::erf(x)),
    ULP_OP("floor", rows, at::floor(x)),
    ULP_OP("ceil", rows, at::ceil(x)),
    ULP_OP("round", rows, at::round(x)),
    ULP_OP("trunc", rows, at::trunc(x)),
    // Truth and integers, as floats in the end.
    ULP_OP("eq.Scalar", rows, at::eq(x.round(), 1).to(x.dtype())),
    ULP_OP("eq.Tensor", rows, at::eq(x, x.abs()).to(x.dtype())),
    ULP_OP("ne.Scalar", rows, at::ne(x.round(), 1).to(x.dtype())),
    ULP_OP("ne.Tensor", rows, at::ne(x, x.abs()).to(x.dtype())),
    ULP_OP("ge.Scalar", rows, at::ge(x, 0.5).to(x.dtype())),
    ULP_OP("ge.Tensor", rows, at::ge(x, x.square()).to(x.dtype())),
    ULP_OP("gt.Scalar", rows, at::gt(x, 0.5).to(x.dtype())),
    ULP_OP("gt.Tensor", rows, at::gt(x, x.square()).to(x.dtype())),
    ULP_OP("le.Scalar", rows, at::le(x, 0.5).to(x.dtype())),
    ULP_OP("le.Tensor", rows, at::le(x, x.square()).to(x.dtype())),
    ULP_OP("lt.Scalar", rows, at::lt(x, 0.5).to(x.dtype())),
    ULP_OP("lt.Tensor", rows, at::lt(x, x.square()).to(x.dtype())),
    ULP_OP("logical_and", rows, at::logical_and(x > -1, x < 1).to(x.dtype())),
    ULP_OP("logical_or", rows, at::logical_or(x.lt(-1), x.gt(1)).to(x.dtype())),
    ULP_OP("logical_xor", rows, at::logical_xor(x > -1, x > 1).to(x.dtype())),
    ULP_OP("logical_not", rows, at::logical_not(x > 0).to(x.dtype())),
    ULP_OP("bitwise_not", rows, at::bitwise_not(x > 0).to(x.dtype())),
    ULP_OP("bitwise_and.Tensor", rows, at::bitwise_and(x > -1, x < 1).to(x.dtype())),
    ULP_OP("bitwise_and.Scalar", ids, at::bitwise_and(x, 3).to(at::kFloat)),
    ULP_OP("bitwise_or.Tensor", rows, at::bitwise_or(x.lt(-1), x.gt(1)).to(x.dtype())),
    ULP_OP("bitwise_or.Scalar", ids, at::bitwise_or(x, 3).to(at::kFloat)),
    ULP_OP("bitwise_xor.Tensor", rows, at::bitwise_xor(x > -1, x > 1).to(x.dtype())),
    ULP_OP("bitwise_xor.Scalar", ids, at::bitwise_xor(x, 3).to(at::kFloat)),
    ULP_OP("isnan", rows, at::isnan(x.log()).to(x.dtype())),
    ULP_OP("isinf", rows, at::isinf(x.round().reciprocal()).to(x.dtype())),
    ULP_OP("_to_copy", rows, at::_to_copy(x, at::kLong).to(at::kFloat)),
    ULP_IN("_to_copy", rows, x.to(at::kLong).to(at::kFloat)),
    // Reductions.
    ULP_OP("sum.dim_IntList", sequence, at::sum(x, {1}, true)),
    ULP_OP("mean.dim", sequence, at::mean(x, {1}, true)),
    ULP_OP("mean.dim", image, at::mean(x, {2, 3}, true)),
    ULP_OP("mean", rows, x - at::mean(x)),
    ULP_OP("amax", sequence, at::amax(x, {1}, true)),
    ULP_OP("amin", sequence, at::amin(x, {1}, true)),
    ULP_OP("max.dim", sequence, get<0>(at::max(x, 1, true))),
    ULP_OP("min.dim", sequence, get<0>(at::min(x, 1, true))),
    ULP_OP("argmax", sequence, at::argmax(x, 1, true)),
    ULP_OP("argmin", sequence, at::argmin(x, 1, true)),
    ULP_OP("prod.dim_int", sequence, at::prod(x, 1, true)),
    ULP_OP("prod", rows, x + at::prod(x)),
    ULP_OP("var.correction", sequence, at::var(x, at::IntArrayRef{1}, at::Scalar(0), true)),
    ULP_OP("var.dim", sequence, at::var(x, at::IntArrayRef{1}, true, true)),
    ULP_OP("any.dim", sequence, at::any(x > 1, 1, true).to(x.dtype())),
    ULP_OP("any.dims", sequence, at::any(x > 1, at::IntArrayRef{1}, true).to(x.dtype())),
    ULP_OP("any", rows, x + at::any(x > 9).to(x.dtype())),
    ULP_OP("cumsum", sequence, at::cumsum(x, 1)),
    ULP_OP("sort", rows, get<0>(at::sort(x, -1))),
    ULP_OP("topk", rows, get<0>(at::topk(x, 3))),
    ULP_OP("_cdist_forward", sequence, at::_cdist_forward(x, x.flip({1}), 2, std::nullopt)),
    ULP_IN("_cdist_forward", sequence, at::cdist(x, x.flip({1}))),
    ULP_OP("_pdist_forward", rows, x + at::_pdist_forward(x).sum()),
    // Moving elements.
    ULP_OP("view", image, x.view({x.size(0), 4, 36})),
    ULP_OP("permute", sequence, x.permute({0, 2, 1})),
    ULP_OP("expand", sequence, x.narrow(1, 0, 1).expand({-1, 3, -1})),
    ULP_OP("repeat", sequence, x.repeat({1, 2, 1})),
    ULP_OP("select.int", sequence, x.select(1, 2)),
    ULP_OP("slice.Tensor", sequence, x.slice(1, 1, 4)),
    ULP_OP("split_with_sizes", sequence, x.split_with_sizes({2, 3}, 1)[1]),
    ULP_OP("squeeze.dim", sequence, x.narrow(1, 0, 1).squeeze(1)),
    ULP_OP("squeeze.dims", sequence, x.narrow(1, 0, 1).squeeze(at::IntArrayRef{1})),
    ULP_OP("unsqueeze", sequence, x.unsqueeze(1)),
    ULP_OP("flip", sequence, x.flip({1})),
    ULP_OP("cat", image, at::cat({x, x * 2}, 1)),
    ULP_OP("cat", sequence, at::cat({x, x * 2}, 1)),
    ULP_OP("diagonal", image, x.diagonal(0, 2, 3)),
    ULP_OP("as_strided", rows, x.contiguous().as_strided({x.size(0), 3}, {6, 2})),
    ULP_OP("clone", rows, x.clone()),
    ULP_OP("alias", rows, at::alias(x)),
    ULP_OP("copy", rows, at::copy(at::zeros_like(x), x)),
    ULP_OP("constant_pad_nd", sequence, at::constant_pad_nd(x, {1, 1})),
    ULP_OP("reflection_pad1d", sequence, at::reflection_pad1d(x, {1, 1})),
    ULP_OP("reflection_pad2d", image, at::reflection_pad2d(x, {1, 1, 1, 1})),
    ULP_OP("reflection_pad3d", volume, at::reflection_pad3d(x, {1, 1, 1, 1, 1, 1})),
    ULP_OP("replication_pad2d", image, at::replication_pad2d(x, {1, 1, 1, 1})),
    ULP_OP("replication_pad3d", volume, at::replication_pad3d(x, {1, 1, 1, 1, 1, 1})),
    ULP_OP("col2im", image, at::col2im(x.flatten(2), {7, 7}, {2, 2}, {1, 1}, {0, 0}, {1, 1})),
    ULP_OP("gather", sequence, at::gather(x, 1, l.indices({1, 3, 6}, 5).expand({x.size(0), -1, -1}))),
    ULP_OP("index_select", sequence, at::index_select(x, 1, l.indices({3}, 5))),
    ULP_OP("index.Tensor", sequence, x.index({torch::indexing::Slice(), l.indices({3}, 5)})),
    ULP_OP("index_put", sequence, at::index_put(x, {std::nullopt, l.indices({2}, 5)}, x.narrow(1, 0, 2))),
    ULP_OP("masked_scatter", rows, at::masked_scatter(x, l.indices({6}, 2) > 0, x * 2)),
    ULP_OP("scatter.src", sequence,
           at::scatter(x, 1, l.indices({1, 2, 6}, 5).expand({x.size(0), -1, -1}), x.narrow(1, 0, 2))),
    ULP_OP("scatter.value", sequence,
           at::scatter(x, 1, l.indices({1, 2, 6}, 5).expand({x.size(0), -1, -1}), 0.5)),
    ULP_OP("scatter_add", sequence,
           at::scatter_add(x, 1, l.indices({1, 2, 6}, 5).expand({x.size(0), -1, -1}), x.narrow(1, 0, 2))),
    ULP_OP("scatter_reduce.two", sequence,
           at::scatter_reduce(x, 1, l.indices({1, 2, 6}, 5).expand({x.size(0), -1, -1}), x.narrow(1, 0, 2),
                              "amax")),
    ULP_OP("select_scatter", sequence, at::select_scatter(x, x.select(1, 0) * 2, 1, 3)),
    ULP_OP("slice_scatter", sequence, at::slice_scatter(x, x.narrow(1, 0, 2) * 2, 1, 3, 5)),
    ULP_OP("nonzero", rows, at::nonzero(x > 0).to(at::kFloat)),
    // Making tensors.
    ULP_OP("full", rows, x + at::full({x.size(0), 6}, 0.5)),
    ULP_OP("full_like", rows, x + at::full_like(x, 0.5)),
    ULP_OP("fill.Scalar", rows, x + at::fill(x, 0.5)),
    ULP_OP("arange.start_step", rows, x + at::arange(0, 6, 1, at::kFloat)),
    ULP_OP("scalar_tensor", rows, x + at::scalar_tensor(0.5)),
    ULP_OP("empty.memory_format", rows, x + at::empty({6}).fill_(0.5)),
    ULP_OP("empty_strided", rows, x + at::empty_strided({6}, {1}).fill_(0.5)),
    ULP_OP("rand", rows, x + at::rand({6})),
    ULP_OP("randn", rows, x + at::randn({6})),
    ULP_OP("randperm", rows, x + at::randperm(6)),
    ULP_OP("resize_", rows, (x * 1).resize_({x.size(0), 3})),
    ULP_OP("atan2.out", rows, angle_of(x, x.abs() + 1)),
    // Transforms.
    ULP_OP("_fft_r2c", sequence, at::view_as_real(at::_fft_r2c(x, {1}, 0, true)).flatten(2)),
    ULP_IN("_fft_r2c", sequence, at::abs(at::fft_rfft(x, std::nullopt, 1))),
    ULP_OP("_fft_c2r", sequence, at::_fft_c2r(at::_fft_r2c(x, {1}, 0, true), {1}, 2, 5)),
    ULP_IN("_fft_c2r", sequence, at::fft_irfft(at::fft_rfft(x, std::nullopt, 1), 5, 1)),
    // What autograd calls.
    ULP_OP("convolution_backward", image,
           get<0>(at::convolution_backward(x, x, l.weight({4, 4, 3, 3}), std::nullopt, {1, 1}, {1, 1}, {1, 1},
                                           false, {0, 0}, 1, {true, true, false}))),
    ULP_OP("embedding_dense_backward", ids,
           at::embedding_dense_backward(x.unsqueeze(2).to(at::kFloat), x, 6, -1, false)),
    ULP_OP("_adaptive_avg_pool2d_backward", image, at::_adaptive_avg_pool2d_backward(x.narrow(2, 0, 3), x)),
    ULP_OP("avg_pool2d_backward", image,
           at::avg_pool2d_backward(x.slice(2, 0, 3).slice(3, 0, 3), x, {2, 2}, {2, 2}, {0, 0}, false, true,
                                   std::nullopt)),
    ULP_OP("max_pool2d_with_indices_backward", image,
           at::max_pool2d_with_indices_backward(x.slice(2, 0, 3).slice(3, 0, 3), x, {2, 2}, {2, 2}, {0, 0},
                                                {1, 1}, false, get<1>(at::max_pool2d_with_indices(x, 2)))),
    ULP_OP("native_layer_norm_backward", sequence,
           get<0>(at::native_layer_norm_backward(x, x, {6}, x.mean({2}, true), x.abs().mean({2}, true) + 1,
                                                 {}, {}, {true, false, false}))),
    ULP_OP("native_group_norm_backward", image,
           get<0>(at::native_group_norm_backward(x, x, x.view({x.size(0), 2, 72}).mean({2}),
                                                 x.view({x.size(0), 2, 72}).abs().mean({2}), {}, x.size(0), 4,
                                                 36, 2, {true, false, false}))),
};

#undef ULP_TRY
#undef ULP_OP
#undef ULP_IN
#undef ULP_EXPORTED

}  // namespace

std::span<const Sample> samples() {
  return kSamples;
}

}  // namespace ulp::test
