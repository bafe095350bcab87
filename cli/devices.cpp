// ulp devices: what this machine can compute with and which kernels would be chosen.
#include "ulp/app/devices.h"

#include <iostream>
#include <memory>

#include "cli/command.h"

namespace ulp::cli {

namespace {

void run(const CommonFlags& flags) {
  const app::Devices devices = app::find_devices();
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
  if (flags.json) return print_json(json);
  print_table(table);
  std::cout << "\nULP_ISA=<name> forces a kernel family; --threads N limits the cores.\n";
}

}  // namespace

void add_devices(CLI::App& app) {
  auto flags = std::make_shared<CommonFlags>();
  CLI::App* command =
      add_command(app, "devices", "Show what this machine can compute with and which kernels are chosen",
                  "  ulp devices\n  ULP_ISA=avx2 ulp devices --json\n", *flags);
  command->callback([flags] { run(*flags); });
}

}  // namespace ulp::cli
