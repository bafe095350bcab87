// ulp bench amp: training in fp32 against training in bf16 and fp16.
#include "ulp/app/bench/bench_amp.h"

#include <iostream>
#include <memory>

#include "cli/command.h"
#include "cli/field_flags.h"
#include "cli/model_flags.h"
#include "ulp/amp/optimizer/training_memory.h"
#include "ulp/report/progress.h"

namespace ulp::cli {

namespace {

struct BenchAmpFlags : CommonFlags {
  std::vector<std::string> networks = {"feed-forward", "unet", "bert"};
  bool quick = false, full = false;
  std::string report, masters = "split", moments = "fp32";
  app::AmpBenchOptions options;
};

void run(BenchAmpFlags& flags) {
  amp::prepare_training_memory();
  apply(flags);
  app::AmpBenchOptions& options = flags.options;
  options.networks.clear();
  as_usage([&] {
    for (const std::string& name : flags.networks) options.networks.push_back(app::find_amp_network(name));
    options.masters = amp::find_masters(flags.masters);
    options.moments = amp::find_moments(flags.moments);
    options.validate();
  });
  if (flags.quick) options.size = app::AmpSize::quick;
  if (flags.full) options.size = app::AmpSize::full;
  if (!flags.report.empty()) check_writable(flags.report);

  std::vector<app::AmpResult> results;
  {
    const auto parts =
        static_cast<int64_t>(options.networks.size() * options.precisions.size()) * (2 + options.rounds);
    report::Progress progress("bench", parts, {.unit = "part"});
    int64_t done = 0;
    options.progress = [&](const std::string& part) { progress.update(done++, part); };
    results = app::bench_amp(options);
  }
  const report::Report report = app::amp_report(results, options);
  if (!flags.report.empty()) report.write_html(flags.report);
  if (flags.json) {
    nlohmann::json json;
    for (const report::Table& table : report.tables) json[table.title] = to_json(table);
    return print_json(json);
  }
  for (const report::Table& table : report.tables) {
    print_table(table);
    std::cout << '\n';
  }
}

}  // namespace

void add_bench_amp(CLI::App& bench) {
  auto flags = std::make_shared<BenchAmpFlags>();
  CLI::App* command =
      add_command(bench, "amp", "Train three networks in fp32, bf16 and fp16: time, memory, loss",
                  "  ulp bench amp\n"
                  "  ulp bench amp --networks bert --full --profile\n"
                  "  ulp bench amp --quick --precisions fp32,bf16,O2:bf16,fp16 --report amp.html\n",
                  *flags);
  command->add_option("--networks", flags->networks, "feed-forward, unet (7,703,497 parameters), bert (base)")
      ->delimiter(',')
      ->capture_default_str();
  command
      ->add_option(
          "--precisions", flags->options.precisions,
          "As in ulp train: fp32, bf16 (autocast), O2:bf16 (bf16 parameters with --masters), fp16 (loss "
          "scaling; slow on a CPU without fp16 arithmetic)")
      ->delimiter(',')
      ->capture_default_str();
  auto* quick = command->add_flag("--quick", flags->quick, "Small shapes, a BERT of two layers: seconds");
  command->add_flag("--full", flags->full, "BERT-base at B=16, S=128 and U-Net at B=4: minutes")
      ->excludes(quick);
  command->add_option("--rounds", flags->options.rounds, "Timed turns of each precision")
      ->check(positive())
      ->capture_default_str();
  command
      ->add_option("--attention-dropout", flags->options.attention_dropout,
                   "Of BERT's attention weights; 0 lets LibTorch use its fused attention")
      ->check(number_check<double>({.name = "", .min = 0, .max = 0.9}, "FLOAT in [0, 0.9]"))
      ->capture_default_str();
  command
      ->add_option("--masters", flags->masters,
                   "How fp32 values behind bf16 parameters are kept: fp32, split, stochastic or kahan")
      ->check(CLI::IsMember({"fp32", "split", "stochastic", "kahan"}))
      ->capture_default_str();
  command
      ->add_option("--moments", flags->moments,
                   "How AdamW's moments of bf16 parameters are kept: fp32, bf16, int8 or int4")
      ->check(CLI::IsMember({"fp32", "bf16", "int8", "int4"}))
      ->capture_default_str();
  command->add_flag("--profile", flags->options.profile,
                    "Also show where the time of a step goes, by operator");
  command->add_option("--report", flags->report, "Write an HTML page with the charts");
  command->callback([flags] { run(*flags); });
}

}  // namespace ulp::cli
