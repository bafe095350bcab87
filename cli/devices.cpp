// ulp devices: what this machine can compute with and which kernels would be chosen.
#include <torch/cuda.h>
#include <torch/version.h>

#include <iostream>
#include <memory>
#include <thread>

#include "cli/command.h"
#include "ulp/kernels/isa/isa.h"
#include "ulp/report/machine.h"

namespace ulp::cli {

namespace {

void run(const CommonFlags& flags) {
  nlohmann::json json;
  report::Table table{.title = "Machine", .columns = {{"what"}, {"value"}}};
  const auto add = [&](const std::string& name, const std::string& value) {
    json[name] = value;
    table.add_row({name, value});
  };
  for (const report::Fact& fact : report::machine_facts()) add(fact.name, fact.value);

  std::string available;
  json["available kernels"] = nlohmann::json::array();
  for (kernels::Isa isa : kernels::available_isas()) {
    available += (available.empty() ? "" : ", ") + std::string(kernels::to_string(isa));
    json["available kernels"].push_back(kernels::to_string(isa));
  }
  table.add_row({std::string("kernels available"), available});
  add("kernels chosen", kernels::to_string(kernels::selected_isa()));
  add("LibTorch", TORCH_VERSION);
  add("CUDA devices", std::to_string(torch::cuda::device_count()));
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
