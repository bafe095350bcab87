// How a student learns: which losses, where, and how much each counts. A plain options struct with validation and versioned
// JSON, and a short text form for command lines.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/base/fields.h"
#include "ulp/distill/weight_schedule.h"

namespace ulp::distill {

class Loss;

/// One loss between a place of the student and one of the teacher (place.h).
struct ULP_API Term {
  std::string loss = "kd";     ///< a name of losses/registry.h
  std::string options = {};    ///< of the loss: "T=4", "beta=8,T=4"
  WeightSchedule weight = {};  ///< what the loss is multiplied by
  /// The temperature along the run, for losses that have one; nothing: it stays as the options have it.
  std::optional<WeightSchedule> temperature = {};
  std::string student = {}, teacher = {};  ///< where; empty: the output

  void visit_fields(FieldVisitor& visit);
  bool operator==(const Term&) const = default;

  /// A term and what its text says of the labels.
  struct FromText;
  /// NAME[:PART[,PART ...]][@STUDENT[=TEACHER]]: a part is a number (the weight), KEY=VALUE (an option of the loss; T may be a
  /// ramp), or alpha=A: the loss is multiplied by 1 - A more and the labels by A. "kd:T=4,alpha=0.1", "at:1000@layer2",
  /// "mse:100>0,@layer2=layer3". One place is for both. Throws ulp::Error naming what is wrong.
  static FromText from_text(const std::string& text);
  /// "at x 1000 at layer2", for reports.
  std::string describe() const;
};

struct Term::FromText {
  Term term;
  std::optional<double> labels = {};
};

/// All that a student learns by: labels * cross-entropy + the sum of weight * loss over the terms.
struct ULP_API Recipe {
  static constexpr const char* kType = "ulp.distill.Recipe";

  std::vector<Term> terms = {{}};
  double labels = 1;  ///< of the cross-entropy with the data's own labels

  /// Terms from their texts; an `alpha` among them sets labels. Throws ulp::Error as Term::from_text() does, and for two
  /// different alphas.
  static Recipe from_terms(const std::vector<std::string>& texts);

  void visit_fields(FieldVisitor& visit);
  /// Throws ulp::Error naming the field, for a loss or an option that is not known, and where nothing is learned.
  void validate() const;
  /// {"type": "ulp.distill.Recipe", "version": 1, ...}; fields that are missing keep their defaults. Throws FileError for
  /// other text, an unknown field, a value of another kind, or a newer version, and ulp::Error as validate() does.
  std::string to_json() const;
  static Recipe from_json(const std::string& text);
  bool operator==(const Recipe&) const = default;
};

/// The loss of a term. Throws ulp::Error as make_loss() of losses/registry.h does.
ULP_API std::shared_ptr<Loss> make_loss(const Term& term);

}  // namespace ulp::distill
