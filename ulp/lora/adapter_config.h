// adapter_config.json as PEFT writes it beside the tensors of an adapter.
#pragma once

#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/lora/lora_options.h"

namespace ulp::lora {

/// The settings of an adapter_config.json.
struct ULP_API AdapterConfig {
  LoraOptions options = {};  ///< base, group, double_quant and skip_modules are not in the file
  std::string target_pattern =
      {};  ///< target_modules as a text: a regular expression of Python's; then options has none
  /// False: not each module that target_modules means has an adapter (layers_to_transform, exclude_modules).
  bool all_targets = true;
  std::string base_model = {};  ///< base_model_name_or_path
  std::string task_type = {};   ///< "CAUSAL_LM"; empty: none
  bool fan_in_fan_out = false;  ///< weights are stored as [in, out]

  /// Throws FileError, which names `source`, for text that is no such JSON, for numbers out of range, and for
  /// each setting that would compute something else: another peft_type than LORA, use_dora, bias other than
  /// none, lora_bias, rank_pattern, alpha_pattern, modules_to_save, init_lora_weights that change the base
  /// (pissa, olora, corda, loftq), and every other one that is not known here and is neither null, false nor
  /// empty.
  static AdapterConfig from_json(const std::string& text, const std::string& source);
  std::string to_json() const;
};

}  // namespace ulp::lora
