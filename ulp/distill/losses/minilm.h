// Relations of self-attention (MiniLM, Wang et al. 2020; MiniLMv2, Wang et al. 2021).
#pragma once

#include <cstdint>

#include "ulp/base/enum_names.h"
#include "ulp/base/export.h"
#include "ulp/distill/losses/float_loss.h"

namespace ulp {
class FieldVisitor;
}

namespace ulp::distill {

/// Which relations are compared.
enum class MiniLmVersion : uint8_t {
  v1,  ///< queries with keys (the attention), values with values
  v2,  ///< queries with queries, keys with keys, values with values
};

/// Options of MiniLm.
struct ULP_API MiniLmOptions {
  MiniLmVersion version = MiniLmVersion::v1;
  int64_t heads = 0;  ///< relation heads that queries, keys and values are divided into; 0: their own heads
  void visit_fields(FieldVisitor& visit);
};

/// The sum over the relations of KL(teacher || student), the mean over samples, heads and positions. A
/// relation of x and y is softmax(x y' / sqrt(d)) in each head of width d. Values are those of one layer,
/// the last in MiniLM: (N, heads, T, d), or fused (N, T, D), which needs the option heads. With that option
/// widths and numbers of heads of the networks may differ, if it divides both widths; without it the
/// numbers of heads must be equal. Positions of padding count like others.
class ULP_API MiniLm : public FloatLoss {
 public:
  explicit MiniLm(const MiniLmOptions& options = {});
  /// {"queries", "keys", "values"}.
  const std::vector<std::string>& places() const override;

 protected:
  at::Tensor compute(const LossInput& input) override;

 private:
  at::Tensor in_heads(const at::Tensor& value) const;
  std::vector<at::Tensor> relations(const std::vector<at::Tensor>& values) const;

  MiniLmOptions options_;
};

}  // namespace ulp::distill

template <>
struct ulp::EnumNames<ulp::distill::MiniLmVersion> {
  using enum distill::MiniLmVersion;
  static constexpr std::array<Word<distill::MiniLmVersion>, 2> list = {
      {{v1, "v1", "queries with keys, values with values"}, {v2, "v2", "each with itself"}}};
};
