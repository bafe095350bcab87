#include "ulp/amp/products/onednn_products.h"

#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>

#include "ulp/base/error.h"
#include "ulp/kernels/isa/isa.h"

namespace ulp::amp {

namespace {

using at::Tensor;

// Below them the time of the call counts as much as the product: measured, bench/notes/onednn-products.md.
constexpr double kLeastOperations = 8e6;
constexpr double kLeastResults = 512 * 512;  ///< of short sums, for which MKL takes several times as long

/// y = x weight^T + bias.
using LinearPointwise = Tensor(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias,
                               std::string_view attribute, c10::List<std::optional<at::Scalar>> scalars,
                               std::optional<std::string_view> algorithm);

std::atomic<int64_t> products_by_onednn{0};

const c10::TypedOperatorHandle<LinearPointwise>* linear_pointwise() {
  static const auto handle = []() -> std::optional<c10::TypedOperatorHandle<LinearPointwise>> {
    if (!at::hasMKLDNN()) return std::nullopt;
    const auto found = c10::Dispatcher::singleton().findSchema({"mkldnn::_linear_pointwise", ""});
    if (!found || !found->hasKernelForDispatchKey(c10::DispatchKey::CPU)) return std::nullopt;
    try {
      return found->typed<LinearPointwise>();
    } catch (const c10::Error&) {
      return std::nullopt;  // a LibTorch whose operator has other arguments
    }
  }();
  return handle ? &*handle : nullptr;
}

bool is_plain_matrix(const Tensor& x) {
  return x.dim() == 2 && x.layout() == c10::kStrided && x.scalar_type() == at::kFloat && x.is_cpu();
}

/// m x k times k x n.
bool is_large(double m, double k, double n) {
  return k >= 2 && (2 * m * k * n >= kLeastOperations || m * n >= kLeastResults);
}

bool is_taken(const Tensor& a, const Tensor& b) {
  return at::globalContext().userEnabledMkldnn() && is_plain_matrix(a) && is_plain_matrix(b) &&
         a.size(1) == b.size(0) &&
         is_large(static_cast<double>(a.size(0)), static_cast<double>(a.size(1)),
                  static_cast<double>(b.size(1)));
}

/// The second operand as oneDNN's weight [n, k], which lies row by row or column by column.
Tensor as_weight(const Tensor& b) {
  const Tensor weight = b.t();
  return weight.is_contiguous() || b.is_contiguous() ? weight : weight.contiguous();
}

Tensor product(const Tensor& a, const Tensor& b, const std::optional<Tensor>& bias) {
  products_by_onednn.fetch_add(1, std::memory_order_relaxed);
  return linear_pointwise()->redispatch(c10::DispatchKeySet(c10::DispatchKey::CPU), a, as_weight(b), bias,
                                        "none", c10::List<std::optional<at::Scalar>>(), std::string_view(""));
}

Tensor mm(const Tensor& a, const Tensor& b) {
  return is_taken(a, b) ? product(a, b, std::nullopt) : at::cpu::mm(a, b);
}

Tensor addmm(const Tensor& bias, const Tensor& a, const Tensor& b, const at::Scalar& beta,
             const at::Scalar& alpha) {
  const bool plain = beta.isIntegral(false) || beta.isFloatingPoint();
  const bool taken = is_taken(a, b) && plain && beta.toDouble() == 1 && !alpha.isComplex() &&
                     alpha.toDouble() == 1 && bias.dim() == 1 && bias.size(0) == b.size(1) && bias.is_cpu() &&
                     bias.scalar_type() == at::kFloat;
  return taken ? product(a, b, bias.contiguous()) : at::cpu::addmm(bias, a, b, beta, alpha);
}

/// LibTorch warns of each kernel that takes another one's place, which is meant here.
struct SilentWarnings : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

class ProductKernels {
 public:
  void enter() {
    const std::lock_guard lock(mutex_);
    if (objects_ == 0) kernels_ = registered();
    ++objects_;
  }
  void leave() {
    const std::lock_guard lock(mutex_);
    if (--objects_ == 0) kernels_.reset();
  }

 private:
  static std::unique_ptr<torch::Library> registered() {
    SilentWarnings silent;
    const c10::WarningUtils::WarningHandlerGuard guard(&silent);
    auto kernels = std::make_unique<torch::Library>(torch::Library::IMPL, "aten", c10::DispatchKey::CPU,
                                                    __FILE__, __LINE__);
    kernels->impl("mm", TORCH_FN(mm));
    kernels->impl("addmm", TORCH_FN(addmm));
    return kernels;
  }

  std::mutex mutex_;
  int objects_ = 0;
  std::unique_ptr<torch::Library> kernels_;
};

/// Never destroyed: objects may live as long as the process.
ProductKernels& product_kernels() {
  static auto* const kernels = new ProductKernels;
  return *kernels;
}

}  // namespace

bool onednn_products_pay() {
  return kernels::is_amd_family_1a() && at::hasMKL() && linear_pointwise() != nullptr;
}

OneDnnProducts::OneDnnProducts() {
  if (linear_pointwise() == nullptr)
    fail("amp.OneDnnProducts", "expected a LibTorch with oneDNN and its operator mkldnn::_linear_pointwise");
  product_kernels().enter();
}

OneDnnProducts::~OneDnnProducts() {
  product_kernels().leave();
}

int64_t OneDnnProducts::count() {
  return products_by_onednn.load(std::memory_order_relaxed);
}

void prepare_training_products() {
  static const auto* const products = onednn_products_pay() ? new OneDnnProducts : nullptr;
  (void)products;
}

}  // namespace ulp::amp
