#include "cli/lora_flags.h"

#include <filesystem>

#include "cli/command.h"
#include "cli/field_flags.h"
#include "cli/model_flags.h"
#include "ulp/base/error.h"
#include "ulp/report/format.h"

namespace ulp::cli {

void LoraFlags::add_to(CLI::App& command) {
  add_field_flags(command, training.options);
  command
      .add_option(
          "--lora-targets", training.options.target_modules,
          "Modules that get adapters, by the end of their paths, as q_proj,v_proj; all-linear: all linear "
          "layers but the last")
      ->delimiter(',')
      ->type_name("NAME,...");
  command
      .add_option("--lora-skip", training.options.skip_modules,
                  "Module paths whose weights are kept in bf16 beside codes; '*' is any run of characters")
      ->delimiter(',')
      ->type_name("PATH,...");
  command.add_option("--adapter", folder,
                     "Train the adapter of this folder of PEFT on; its own settings and --lora-base count");
  CLI::Option* rank = command.get_option("--lora");
  rank->description(
      "Train adapters of this rank beside frozen weights, and write them by --out as a folder of PEFT");
  rank->each([this](const std::string&) { asked = true; });
  rank->default_str("");
  for (const char* name : {"--lora-alpha", "--lora-dropout", "--lora-rslora", "--lora-targets"})
    command.get_option(name)->each([this, name](const std::string&) {
      if (first_other.empty()) first_other = name;
    });
}

void LoraFlags::check(bool init, const amp::PrecisionName& precision, bool masters) const {
  if (asked && !folder.empty())
    throw CLI::ValidationError("--lora and --adapter exclude each other: the folder has its own rank");
  if (!trains()) {
    const bool changed = !(training.options == lora::LoraOptions{});
    if (changed || !first_other.empty())
      throw CLI::ValidationError("flags of --lora-* need --lora RANK or --adapter FOLDER");
    return;
  }
  if (!folder.empty() && !first_other.empty())
    throw CLI::ValidationError(first_other + " and --adapter exclude each other: the folder has its own");
  if (!init) throw CLI::ValidationError("--lora and --adapter need --init, the model whose weights stay");
  if (precision->fp8 || precision->int8 || precision->parameter_dtype || masters)
    throw CLI::ValidationError("--lora and --adapter go with --precision fp32, bf16, fp16 and O1, got " +
                               (masters ? std::string("--masters") : "--precision " + precision.name()));
  if (asked && training.options.target_modules.empty())
    throw CLI::ValidationError("--lora needs --lora-targets, as q_proj,v_proj or all-linear");
  lora::LoraOptions options = training.options;
  if (options.target_modules.empty()) options.target_modules = {"any"};
  as_usage([&] { options.validate(); });
}

app::AdapterTraining LoraFlags::asked_for() const {
  app::AdapterTraining made = training;
  made.from = folder;
  return made;
}

void add_adapter_flag(CLI::App& command, std::string& folder) {
  command.add_option("--adapter", folder,
                     "Merge the adapter of this folder of PEFT (LoRA) into the weights first");
}

void check_adapter_folder(const std::string& out) {
  namespace fs = std::filesystem;
  if (out.empty()) return;
  check_ending(out, {});
  if (fs::exists(out) && !fs::is_directory(out))
    throw CLI::ValidationError("--out", "expected a folder for an adapter, got the file '" + out + "'");
  if (!fs::exists(out)) check_writable(out);
}

nlohmann::json figures_of(const lora::LoraModel& adapters) {
  return {{"layers", adapters.layers().size()},
          {"parameters", adapters.adapter_parameters()},
          {"base", enum_name(adapters.options().base)},
          {"base_bytes", adapters.base_bytes()}};
}

std::string text_of(const lora::LoraModel& adapters) {
  return "adapters: " + std::to_string(adapters.adapter_parameters()) + " parameters in " +
         std::to_string(adapters.layers().size()) + " layers; base in " + enum_name(adapters.options().base) +
         ", " + report::format_bytes(static_cast<double>(adapters.base_bytes()));
}

}  // namespace ulp::cli
