// ulp devices: what this machine can compute with and which kernels would be chosen.
#include "ulp/app/bench/devices.h"

#include <iostream>
#include <memory>

#include "cli/command.h"
#include "ulp/report/progress.h"

namespace ulp::cli {

namespace {

struct DevicesFlags : CommonFlags {
  bool measure = false, quick = false;
};

std::vector<report::Table> measured(const DevicesFlags& flags) {
  if (!flags.measure && !flags.quick) return {};
  report::Progress progress("peaks", 0, {.unit = "part", .leave = false});
  int64_t done = 0;
  return app::peak_tables(flags.threads, flags.quick,
                          [&](const std::string& part) { progress.update(done++, part); });
}

void run(const DevicesFlags& flags) {
  const app::Devices devices = app::find_devices();
  std::vector<report::Table> more = measured(flags);
  if (!devices.gpus.empty()) more.insert(more.begin(), app::gpu_table(devices.gpus));
  nlohmann::json json;
  report::Table table{.title = "Machine", .columns = {{"what"}, {"value"}}};
  const auto add = [&](const std::string& name, const std::string& value) {
    json[name] = value;
    table.add_row({name, value});
  };
  for (const report::Fact& fact : devices.machine) add(fact.name, fact.value);

  std::string available;
  for (const std::string& name : devices.kernels) available += (available.empty() ? "" : ", ") + name;
  json["available kernels"] = devices.kernels;
  table.add_row({std::string("kernels available"), available});
  add("kernels chosen", devices.chosen);
  add("CUDA devices", std::to_string(devices.cuda_devices));
  for (const report::Table& each : more) json[each.title] = to_json(each);
  if (flags.json) return print_json(json);
  print_table(table);
  for (const report::Table& each : more) {
    std::cout << '\n';
    print_table(each);
  }
  std::cout << "\nULP_ISA=<name> forces a kernel family; --threads N limits the cores.\n";
}

void add_devices(CLI::App& app) {
  auto flags = std::make_shared<DevicesFlags>();
  CLI::App* command =
      add_command(app, "devices", "Show what this machine can compute with and which kernels are chosen",
                  "  ulp devices\n  ulp devices --measure\n  ULP_ISA=avx2 ulp devices --json\n", *flags);
  command->add_flag("--measure", flags->measure,
                    "Measure what the machine reaches: products by instruction set, memory and caches");
  command->add_flag("--quick", flags->quick, "The same in a third of the time, a little less sure");
  command->callback([flags] { run(*flags); });
}

const Command kDevicesCommand("devices", add_devices);

}  // namespace

}  // namespace ulp::cli
