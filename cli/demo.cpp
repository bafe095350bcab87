// ulp demo: the main job on Fashion-MNIST.
#include "ulp/app/demo/demo.h"

#include <ATen/Parallel.h>

#include <iostream>
#include <memory>

#include "cli/command.h"
#include "cli/field_flags.h"
#include "ulp/amp/optimizer/training_memory.h"
#include "ulp/models/registry.h"
#include "ulp/report/format.h"

namespace ulp::cli {

namespace {

struct DemoFlags : CommonFlags, app::DemoOptions {};

void run(DemoFlags& flags) {
  amp::prepare_training_memory();
  apply(flags);
  flags.adapt_threads = !has_fixed_threads(flags);
  flags.announce = [](const std::vector<app::DemoPart>& parts) {
    std::cerr << app::describe(parts, at::get_num_threads()) << std::flush;
  };
  const report::Report report = app::run_demo(flags);
  if (flags.json) return print_json(nlohmann::json::parse(report.to_json()));
  std::cout << report.to_text({.unicode = report::locale_is_utf8()})
            << "\nReport: " << (flags.out / "report.html").string() << '\n';
}

void add_demo(CLI::App& app) {
  auto flags = std::make_shared<DemoFlags>();
  CLI::App* command = add_command(
      app, "demo",
      "The main job on Fashion-MNIST: train in fp32, bf16 and fp16, quantize, lower, evaluate, measure, "
      "report",
      "  ulp demo\n  ulp demo --quick --out /tmp/demo\n  ulp demo --model resnet20 --epochs 10 --json\n",
      *flags);
  say_threads_follow(*command);
  command->add_flag("--quick", flags->quick, "A few hundred steps: under a minute");
  command->add_option("-o,--out", flags->out, "Folder for model, engines, report.json and report.html")
      ->capture_default_str();
  command->add_option("--data", flags->data, "fashion-mnist, or a folder with the four IDX files")
      ->capture_default_str();
  command->add_option("--model", flags->model, "Reference network")
      ->check(CLI::IsMember(models::model_names()))
      ->capture_default_str();
  command->add_option("--epochs", flags->epochs, "Epochs of the fp32 and bf16 runs")
      ->check(positive())
      ->capture_default_str();
  command->add_option("--seed", flags->seed, "Seed of weights, order and augmentation")
      ->check(number_check<uint64_t>({.name = ""}))
      ->capture_default_str();
  command->callback([flags] { run(*flags); });
}

const Command kDemoCommand("demo", add_demo);

}  // namespace

}  // namespace ulp::cli
