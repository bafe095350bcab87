// Measures what mixed precision saves on the three networks of the articles, trained in fp32 and below.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ulp/amp/optimizer/update_rule.h"
#include "ulp/base/export.h"
#include "ulp/measure/interference.h"
#include "ulp/measure/op_profile.h"
#include "ulp/report/report.h"

namespace ulp::app {

/// A small feed-forward network, the U-Net of 7,703,497 parameters, and BERT-base.
enum class AmpNetwork { feed_forward, unet, bert };

/// The name of a network on the command line.
ULP_API const char* to_string(AmpNetwork network);
/// Throws Error for a name that to_string() does not give, listing those that it does.
ULP_API AmpNetwork find_amp_network(const std::string& name);

/// How large the networks and their batches are.
enum class AmpSize {
  quick,  ///< small images and a BERT of two layers: seconds; shows that it works, not what it saves
  usual,  ///< BERT-base at B=4, S=128; one to two minutes
  full    ///< BERT-base at B=16, S=128
};

/// Options of `ulp bench amp`.
struct ULP_API AmpBenchOptions {
  std::vector<AmpNetwork> networks = {AmpNetwork::feed_forward, AmpNetwork::unet, AmpNetwork::bert};
  /// Names of amp::precisions().
  std::vector<std::string> precisions = {"fp32", "bf16", "O2:bf16"};
  amp::MasterWeights masters = amp::MasterWeights::split;  ///< where parameters are bf16
  amp::MomentFormat moments = amp::MomentFormat::fp32;     ///< of the optimizer where parameters are bf16
  AmpSize size = AmpSize::usual;
  int rounds = 3;                  ///< timed turns A B A B; each precision does at least one step in each
  double dropout = 0.1;            ///< of BERT, as published; that of attention weights is the next
  double attention_dropout = 0.1;  ///< above 0 LibTorch's CPU computes attention step by step
  bool profile = false;            ///< also where the time of one step goes
  uint64_t seed = 1;
  UsageProbe probe = {};  ///< of what others take of the processors; empty: the machine itself
  /// Called before each part with what it is ("bert, bf16: memory"); may be empty.
  std::function<void(const std::string& part)> progress = {};

  /// Throws Error naming the field.
  void validate() const;
};

/// One network in one precision.
struct AmpResult {
  AmpNetwork network = AmpNetwork::feed_forward;
  std::string precision = "fp32";
  std::string shape = {};  ///< "B=16, S=128"
  int64_t parameters = 0;
  double seconds = 0;  ///< of a step: forward, backward, optimizer; the median of the turns
  double fastest = 0, slowest = 0;
  std::optional<double> others = {};  ///< see measure::share_of_others(); of the timed turns
  int64_t peak_bytes = 0;  ///< of tensors alive at once in two steps, the model and its state included
  int64_t steps = 0;       ///< taken in all
  double first_loss = 0,
         last_loss = 0;  ///< of the first step and of the last; the same data in every precision
  std::vector<measure::OpTime> profile = {};  ///< of one step; empty unless asked for
};

/// Trains every network in every precision. Data are made up but can be learnt; they, the start and the order
/// are the same in every precision. Throws Interrupted on Ctrl-C.
ULP_API std::vector<AmpResult> bench_amp(const AmpBenchOptions& options);

/// Rows of results: seconds and memory with their ratios to the network's fp32 row, where there is one. Times
/// that other programs disturbed are marked (they cannot be taken again: all precisions take the same steps).
ULP_API report::Table amp_table(const std::vector<AmpResult>& results);
/// Operators of one step by time, those above 1 %.
ULP_API report::Table amp_profile_table(const AmpResult& result);
/// The table with charts of the ratios, the machine and what was run. Ratios of disturbed times are no
/// headlines.
ULP_API report::Report amp_report(const std::vector<AmpResult>& results, const AmpBenchOptions& options);

}  // namespace ulp::app
