// The options of a search for the bits and the method of each weight; mixed_precision.h does it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ulp/base/byte_size.h"
#include "ulp/base/export.h"
#include "ulp/base/fields.h"
#include "ulp/quant/weights/weight_method.h"

namespace ulp::quant {

/// One way in which a weight may be stored, as text: "8", "4/32", "3/64/affine/gptq", "4/-1/hqq".
struct ULP_API WeightFormat {
  int64_t bits = 4;
  int64_t group = 32;  ///< of 2 to 4 bits; -1: the whole row
  bool affine = false;
  WeightMethod method = WeightMethod::rtn;

  std::string text() const;
  /// Nothing for other texts; numbers that a recipe does not take are read.
  static std::optional<WeightFormat> from_text(const std::string& text);
  bool operator==(const WeightFormat&) const = default;
};

/// A search: the least loss within a size, or the smallest size within a loss.
struct ULP_API MixedPrecisionSearch {
  /// Bounds the size of all weights of the model; those that stay in float count.
  std::optional<ByteSize> max_bytes = {};
  /// More than the float model's loss; then the smallest mix is searched for.
  std::optional<double> max_loss = {};
  /// Ways to store a weight, in WeightFormat's text form.
  std::vector<std::string> candidates = default_candidates();
  int64_t finalists = 8;  ///< so many of the mixes on the front are measured

  static std::vector<std::string> default_candidates();
  void visit_fields(FieldVisitor& visit);
  /// Throws ulp::Error naming the field.
  void validate() const;
  /// The candidates. Throws ulp::Error naming the one that is no such text.
  std::vector<WeightFormat> formats() const;
  bool operator==(const MixedPrecisionSearch&) const = default;
};

}  // namespace ulp::quant
