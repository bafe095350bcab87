#include "ulp/amp/autocast/op_lists.h"

#include <ATen/autocast_mode.h>

namespace ulp::amp {

namespace {

// LibTorch has its CPU lists only as registrations; a test compares these names with what is registered.
constexpr const char* kCpuLower[] = {"conv1d",
                                     "conv1d.padding",
                                     "conv2d",
                                     "conv2d.padding",
                                     "conv3d",
                                     "conv3d.padding",
                                     "bmm",
                                     "mm",
                                     "linalg_vecdot",
                                     "baddbmm",
                                     "addmm",
                                     "_addmm_activation",
                                     "addbmm",
                                     "linear",
                                     "_convolution.deprecated",
                                     "matmul",
                                     "conv_tbc",
                                     "mkldnn_rnn_layer",
                                     "conv_transpose1d",
                                     "conv_transpose2d.input",
                                     "conv_transpose3d.input",
                                     "prelu",
                                     "scaled_dot_product_attention",
                                     "_native_multi_head_attention"};

constexpr const char* kCpuFp32[] = {"avg_pool3d",
                                    "binary_cross_entropy",
                                    "grid_sampler",
                                    "polar",
                                    "prod",
                                    "prod.dim_int",
                                    "prod.dim_Dimname",
                                    "quantile",
                                    "quantile.scalar",
                                    "nanquantile",
                                    "nanquantile.scalar",
                                    "stft",
                                    "stft.center",
                                    "cdist",
                                    "grid_sampler_2d",
                                    "_grid_sampler_2d_cpu_fallback",
                                    "grid_sampler_3d",
                                    "trace",
                                    "view_as_complex",
                                    "cholesky",
                                    "cholesky_inverse",
                                    "cholesky_solve",
                                    "inverse",
                                    "lu_solve",
                                    "orgqr",
                                    "ormqr",
                                    "pinverse",
                                    "max_pool3d",
                                    "max_unpool2d",
                                    "max_unpool3d",
                                    "adaptive_avg_pool3d",
                                    "reflection_pad1d",
                                    "reflection_pad2d",
                                    "replication_pad1d",
                                    "replication_pad2d",
                                    "replication_pad3d",
                                    "mse_loss",
                                    "cosine_embedding_loss",
                                    "nll_loss",
                                    "nll_loss2d",
                                    "hinge_embedding_loss",
                                    "poisson_nll_loss",
                                    "smooth_l1_loss",
                                    "cross_entropy_loss",
                                    "l1_loss",
                                    "huber_loss",
                                    "margin_ranking_loss",
                                    "soft_margin_loss",
                                    "triplet_margin_loss",
                                    "multi_margin_loss",
                                    "ctc_loss.IntList",
                                    "ctc_loss.Tensor",
                                    "kl_div",
                                    "multilabel_margin_loss",
                                    "binary_cross_entropy_with_logits",
                                    "fft_fft",
                                    "fft_ifft",
                                    "fft_fft2",
                                    "fft_ifft2",
                                    "fft_fftn",
                                    "fft_ifftn",
                                    "fft_rfft",
                                    "fft_irfft",
                                    "fft_rfft2",
                                    "fft_irfft2",
                                    "fft_rfftn",
                                    "fft_irfftn",
                                    "fft_hfft",
                                    "fft_ihfft",
                                    "linalg_cond",
                                    "linalg_cond.p_str",
                                    "linalg_matrix_rank",
                                    "linalg_matrix_rank.tol_tensor",
                                    "linalg_matrix_rank.atol_rtol_tensor",
                                    "linalg_matrix_rank.atol_rtol_float",
                                    "linalg_solve",
                                    "linalg_cholesky",
                                    "linalg_svdvals",
                                    "linalg_eigvals",
                                    "linalg_eigvalsh",
                                    "linalg_inv",
                                    "linalg_householder_product",
                                    "linalg_tensorinv",
                                    "linalg_tensorsolve",
                                    "fake_quantize_per_tensor_affine",
                                    "geqrf",
                                    "_lu_with_info",
                                    "qr",
                                    "svd",
                                    "triangular_solve",
                                    "fractional_max_pool2d",
                                    "fractional_max_pool3d",
                                    "adaptive_max_pool3d",
                                    "multilabel_margin_loss_forward",
                                    "linalg_qr",
                                    "linalg_cholesky_ex",
                                    "linalg_svd",
                                    "linalg_eig",
                                    "linalg_eigh",
                                    "linalg_lstsq",
                                    "linalg_inv_ex"};

constexpr const char* kCpuWidest[] = {"stack", "cat", "index_copy", "index_copy.dimname"};

constexpr OpList kCpu[] = {
    {Cast::lower_precision, kCpuLower}, {Cast::fp32, kCpuFp32}, {Cast::widest, kCpuWidest}};

// The CUDA lists come with LibTorch's header as macros over (op) or (op, overload), so that they are those of
// the LibTorch that this is compiled against.
#define ULP_OP(op) #op,
#define ULP_OVERLOAD(op, overload) #op "." #overload,
#define ULP_PICK(first, second, macro, ...) macro
#define ULP_NAME(...) ULP_PICK(__VA_ARGS__, ULP_OVERLOAD, ULP_OP, )(__VA_ARGS__)
#define ULP_REDISPATCHED(function, name, ...) name,

constexpr const char* kCudaLower[] = {AT_FORALL_LOWER_PRECISION_FP(ULP_NAME) "cudnn_convolution",
                                      "cudnn_convolution_transpose"};
constexpr const char* kCudaFp32[] = {AT_FORALL_FP32(ULP_NAME)
                                         AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(ULP_REDISPATCHED)};
constexpr const char* kCudaSetDtype[] = {AT_FORALL_FP32_SET_OPT_DTYPE(ULP_NAME)};
constexpr const char* kCudaWidest[] = {AT_FORALL_PROMOTE(ULP_NAME)};
constexpr const char* kCudaRefused[] = {"binary_cross_entropy"};

constexpr OpList kCuda[] = {{Cast::lower_precision, kCudaLower},
                            {Cast::fp32, kCudaFp32},
                            {Cast::fp32_set_opt_dtype, kCudaSetDtype},
                            {Cast::widest, kCudaWidest},
                            {Cast::refuse, kCudaRefused}};

#undef ULP_OP
#undef ULP_OVERLOAD
#undef ULP_PICK
#undef ULP_NAME
#undef ULP_REDISPATCHED

}  // namespace

std::span<const OpList> libtorch_cpu_lists() {
  return kCpu;
}

std::span<const OpList> cuda_lists() {
  return kCuda;
}

}  // namespace ulp::amp
