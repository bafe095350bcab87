// Contrastive representation distillation (Tian, Krishnan, Isola 2020, section 3).
#pragma once

#include <cstdint>
#include <memory>

#include "ulp/base/enum_names.h"
#include "ulp/base/export.h"
#include "ulp/distill/losses/float_loss.h"

namespace torch::nn {
class LinearImpl;
}

namespace ulp {
class FieldVisitor;
}

namespace ulp::distill {

/// Which sample of the memory is the positive one.
enum class CrdPositive : uint8_t {
  same_sample,
  same_class,  ///< any sample of the class, itself too; needs targets
};

/// Options of Crd.
struct ULP_API CrdOptions {
  int64_t dim = 128;          ///< width of the embeddings, >= 1
  int64_t negatives = 16384;  ///< for each sample; at most as many as there are other samples, >= 1
  double temperature = 0.07;  ///< what products are divided by; >= 0.02, so that exp(1 / T) fits fp32
  double momentum = 0.5;      ///< share of the old embedding in a memory, in [0, 1)
  CrdPositive positive = CrdPositive::same_sample;
  bool other_classes = true;  ///< negatives are of other classes, where targets are given
  void visit_fields(FieldVisitor& visit);
};

/// Noise-contrastive estimation of which embedding of the teacher belongs to which of the student, and the
/// other way round. Values (N, ...) are flattened, mapped to `dim` numbers by a linear layer each, and
/// divided by their norm. Each network has a memory of the embeddings of all samples. A sample's score
/// against a memory's entry is P = exp(their product / T) / Z; the loss is
///   -log(P / (P + r)) of the positive entry - the sum over the m negatives of log(r / (P + r)), r = m / n,
/// the mean over the batch, summed over both directions; n is the number of samples in the data set. The
/// first batch in training sets Z so that the mean of P is 1 / n; then it is kept. After the loss is
/// computed in training, the memories' entries of the batch move towards the new embeddings.
///
/// Negatives are drawn with replacement, for each sample anew. Classes of samples are learned from the
/// batches' targets in training; a sample not seen yet, or without a label, counts as of another class. Layers, memories and
/// draws come from torch's global generator of the values' device. Parameters: student.weight,
/// student.bias, teacher.weight, teacher.bias. Buffers: student_memory, teacher_memory (n, dim), classes
/// (n), and z (2) of the student's and the teacher's embeddings, 0 before it is set.
class ULP_API Crd : public FloatLoss {
 public:
  explicit Crd(const CrdOptions& options = {});
  ~Crd() override;
  /// Makes layers and buffers on the example's device, in fp64 for fp64 values, else in fp32. Throws
  /// ulp::Error for fewer than 2 samples and at a second call.
  void prepare(const LossInput& example, int64_t samples) override;

 protected:
  /// Throws ulp::Error before prepare(), for samples that are missing or not in [0, n), and where there is no
  /// other class.
  at::Tensor compute(const LossInput& input) override;

 private:
  void learn_classes(const LossInput& input);
  at::Tensor draw(const at::Tensor& samples) const;
  at::Tensor embed(const at::Tensor& value, torch::nn::LinearImpl& layer) const;
  at::Tensor direction(const at::Tensor& embedding, const at::Tensor& memory, const at::Tensor& entries,
                       int64_t z);
  void remember(at::Tensor& memory, const at::Tensor& samples, const at::Tensor& embedding) const;

  CrdOptions options_;
  std::shared_ptr<torch::nn::LinearImpl> student_, teacher_;
  at::Tensor student_memory_, teacher_memory_, classes_, z_;
};

}  // namespace ulp::distill

template <>
struct ulp::EnumNames<ulp::distill::CrdPositive> {
  using enum distill::CrdPositive;
  static constexpr std::array<Word<distill::CrdPositive>, 2> list = {
      {{same_sample, "same_sample"}, {same_class, "same_class", "any sample of the class"}}};
};
