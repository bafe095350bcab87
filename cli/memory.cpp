// ulp memory: how much memory training takes, before it is tried.
#include "ulp/app/memory/memory.h"

#include <filesystem>
#include <iostream>
#include <memory>

#include "cli/command.h"
#include "cli/field_flags.h"
#include "cli/fp8_recipe_file.h"
#include "cli/memory_plan_flags.h"
#include "cli/model_flags.h"
#include "ulp/base/byte_size.h"
#include "ulp/base/fields_json.h"
#include "ulp/report/format.h"
#include "ulp/report/progress.h"

namespace ulp::cli {

namespace {

/// Of TrainOptions, what memory depends on.
constexpr const char* kOfTraining[] = {"precision", "scaler", "masters",    "moments", "fp32_moments",
                                       "optimizer", "batch",  "accumulate", "clip",    "momentum"};

struct MemoryFlags : CommonFlags {
  std::string model, budget, report, fp8_recipe;
  app::ModelShape shape;
  app::MemoryQuestion question;
};

void fields_of_training(MemoryFlags& flags, FieldVisitor& visitor) {
  visit_some(visitor, kOfTraining, [&](FieldVisitor& some) { flags.question.options.visit_fields(some); });
  flags.question.plan.visit_fields(visitor);
}

void check(MemoryFlags& flags) {
  const train::TrainOptions& options = flags.question.options;
  if (const auto conflict = options.conflict()) throw CLI::ValidationError(in_flags(*conflict, options));
  as_usage([&] { options.validate(); });
  check_memory_plan(flags.question.plan, options);
  check_fp8_recipe_flag(flags.fp8_recipe, options.precision);
  flags.question.fp8 = read_fp8_recipe(flags.fp8_recipe, options.precision);
  if (!flags.budget.empty()) {
    const auto budget = ByteSize::from_text(flags.budget);
    if (!budget)
      throw CLI::ValidationError("--budget",
                                 "expected " + std::string(ByteSize::kExpected) + ", got " + flags.budget);
    flags.question.budget = budget->bytes;
  }
  if (!flags.report.empty()) make_folder(flags.report);
}

nlohmann::json answer_json(const app::MemoryAnswer& answer) {
  const memory::Prediction& prediction = answer.prediction;
  nlohmann::json json = {{"model", answer.model},
                         {"batch", prediction.size.batch},
                         {"precision", answer.options.precision.name()},
                         {"optimizer", enum_name(answer.options.optimizer)},
                         {"moments", enum_name(answer.options.moments)},
                         {"peak_bytes", prediction.peak_bytes},
                         {"peak", app::cause_of_peak(prediction)}};
  json.update(changed_fields_to_json(answer.plan));
  if (prediction.size.length > 0) json["length"] = prediction.size.length;
  for (size_t i = 0; i < memory::kCategories; ++i)
    json["at_peak"][enum_name(static_cast<memory::Category>(i))] = prediction.at_peak.bytes[i];
  if (answer.budget) {
    json["budget_bytes"] = *answer.budget;
    for (const app::Fit& fit : answer.fits)
      json["fits"].push_back({{"length", fit.length}, {"batch", fit.batch}, {"peak_bytes", fit.peak_bytes}});
    if (prediction.size.length > 0) json["longest"] = answer.longest;
  }
  if (answer.measured_bytes) json["measured_bytes"] = *answer.measured_bytes;
  return json;
}

void show_fits(const app::MemoryAnswer& answer) {
  const memory::RunSize size = answer.prediction.size;
  print_table(app::fit_table(answer));
  const std::string budget = report::format_bytes(static_cast<double>(*answer.budget));
  const bool fits = answer.prediction.peak_bytes <= *answer.budget;
  std::cout << "batch " << size.batch << (fits ? " fits" : " does not fit") << " in " << budget;
  if (size.length > 0) {
    std::cout << " at length " << size.length << "; the longest text at this batch has " << answer.longest
              << (answer.longest == answer.most_length ? " tokens, the network's limit" : " tokens");
  }
  std::cout << '\n';
}

void run(MemoryFlags& flags) {
  apply(flags);
  check(flags);
  app::MemoryQuestion& question = flags.question;
  for (const int64_t length : question.lengths) flags.shape.length = std::max(flags.shape.length, length);
  flags.shape.length = std::max(flags.shape.length, question.length);
  const app::Workload model = app::find_workload(flags.model, flags.shape);
  as_usage([&] { app::check_question(model, question); });
  app::MemoryAnswer answer;
  {
    report::Progress progress("small runs", 0, {.unit = "run"});
    int64_t done = 0;
    question.progress = [&](memory::RunSize size) {
      progress.update(done++, "batch " + std::to_string(size.batch) +
                                  (size.length > 0 ? ", length " + std::to_string(size.length) : ""));
    };
    answer = app::ask_memory(model, question);
  }
  if (!flags.report.empty()) {
    const report::Report report = app::memory_report(answer);
    report.write_json(std::filesystem::path(flags.report) / "report.json");
    report.write_html(std::filesystem::path(flags.report) / "report.html");
  }
  if (flags.json) return print_json(answer_json(answer));
  print_table(app::memory_table(answer));
  if (answer.budget) {
    std::cout << '\n';
    show_fits(answer);
  }
  if (answer.measured_bytes) {
    std::cout << '\n';
    print_table(app::proof_table(answer));
  }
  if (!flags.report.empty()) std::cout << "wrote " << flags.report << "/report.html\n";
}

void add_memory(CLI::App& app) {
  auto flags = std::make_shared<MemoryFlags>();
  flags->question.options.optimizer = train::Optimizer::adamw;
  CLI::App* command = add_command(
      app, "memory", "Tell how much memory training takes, and what fits, before it is tried",
      "  ulp memory resnet20 --batch 512 --precision bf16 --optimizer sgd\n"
      "  ulp memory bert-base --length 128 --batch 32 --budget 12GiB\n"
      "  ulp memory bert-base --lengths 64,128,256,320,384,512 --budget 12GiB\n"
      "  ulp memory gpt2 --batch 64 --moments int8 --checkpoint-activations sqrt --prove\n"
      "  ulp memory resnet20 --precision fp8:current --checkpoint-activations bytes:20MiB --prove\n"
      "  ulp memory model.safetensors --batch 256 --prove --report out\n",
      *flags);
  command
      ->add_option("model", flags->model,
                   "A reference network, bert-base, bert-large, gpt2-small, gpt2-medium, or a model file")
      ->required();
  add_field_flags(*command,
                  [flags = flags.get()](FieldVisitor& visitor) { fields_of_training(*flags, visitor); });
  command
      ->add_option("--length", flags->question.length,
                   "Texts: tokens in one (default: 128, at most what the network takes)")
      ->check(positive());
  command->add_option("--lengths", flags->question.lengths, "Texts: rows of the table of what fits")
      ->delimiter(',')
      ->check(positive());
  command->add_option("--budget", flags->budget, "Memory that there is, as 12GiB or 800MB");
  add_fp8_recipe_flag(*command, flags->fp8_recipe);
  add_shape_flags(*command, flags->shape);
  command->add_flag("--prove", flags->question.prove, "Train two steps of this size and measure their peak");
  command->add_option("--report", flags->report, "Folder for report.json and report.html");
  command->callback([flags] { run(*flags); });
}

const Command kMemoryCommand("memory", add_memory);

}  // namespace

}  // namespace ulp::cli
