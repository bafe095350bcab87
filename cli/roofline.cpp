// ulp roofline: each layer of a network below the measured roof of this machine.
#include "ulp/app/roofline/roofline.h"

#include <filesystem>
#include <iostream>
#include <memory>

#include "cli/command.h"
#include "cli/field_flags.h"
#include "cli/model_flags.h"
#include "ulp/report/progress.h"

namespace ulp::cli {

namespace {

struct RooflineFlags : CommonFlags {
  app::RooflineOptions options;
  std::string precision, report;
};

void write_report(const report::Report& page, const std::string& folder) {
  page.write_json(std::filesystem::path(folder) / "report.json");
  page.write_html(std::filesystem::path(folder) / "report.html");
}

void run(RooflineFlags& flags) {
  apply(flags);
  app::RooflineOptions& options = flags.options;
  options.threads = flags.threads;
  as_usage([&] {
    if (!flags.precision.empty())
      options.precision =
          require_word<app::RooflinePrecision>("cli.roofline", "a precision", flags.precision);
    app::check_roofline(options, !flags.precision.empty());
  });
  if (!flags.report.empty()) make_folder(flags.report);
  app::RooflineResult result;
  {
    report::Progress progress("roofline", 0, {.unit = "part", .leave = false});
    int64_t done = 0;
    options.progress = [&](const std::string& part) { progress.update(done++, part); };
    result = app::roofline(options);
  }
  const report::Report page = app::roofline_report(result, options);
  if (!flags.report.empty()) write_report(page, flags.report);
  if (flags.json) return print_json(nlohmann::json::parse(page.to_json()));
  for (const report::Table& table : page.tables) {
    print_table(table);
    std::cout << '\n';
  }
  for (const std::string& note : page.notes) std::cout << note << '\n';
}

void add_roofline(CLI::App& app) {
  auto flags = std::make_shared<RooflineFlags>();
  app::RooflineOptions& options = flags->options;
  CLI::App* command = add_command(
      app, "roofline", "What bounds each layer of a network on this machine, and how close it comes",
      "  ulp roofline model.int8.ulp --batch 16\n"
      "  ulp roofline resnet50 --shape 3,224,224 --precision bf16 --report out\n"
      "  ulp roofline bert-base --length 128 --precision int8 --threads 1\n"
      "  ulp roofline model.safetensors --train --batch 32 --json\n",
      *flags);
  command
      ->add_option("model", options.model,
                   "An engine or model file, or a network with random weights: a reference network, "
                   "bert-base, bert-large, gpt2-small, gpt2-medium")
      ->required();
  command->add_option("--batch", options.batch, "Items in a batch")->check(positive())->capture_default_str();
  command->add_option(
      "--precision", flags->precision,
      "fp32 (if not said), bf16 or int8: of the engine that is made of a model, or of training (fp32, bf16)");
  command->add_flag("--train", options.train, "Forward and backward passes in LibTorch instead of an engine");
  command
      ->add_option("--length", options.length,
                   "Texts: tokens in one (default: 128, at most what the network takes)")
      ->check(positive());
  command->add_option("--runs", options.runs, "Runs at least; each layer has the fastest of its times")
      ->check(positive())
      ->capture_default_str();
  command->add_flag("--quick", options.quick, "Measure the machine's peaks in a third of the time");
  command->add_option("--report", flags->report, "Folder for report.json and report.html");
  add_shape_flags(*command, options.shape);
  command->callback([flags] { run(*flags); });
}

const Command kRooflineCommand("roofline", add_roofline);

}  // namespace

}  // namespace ulp::cli
