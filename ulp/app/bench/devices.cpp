#include "ulp/app/bench/devices.h"

#include <torch/cuda.h>

#include <cmath>
#include <optional>

#include "ulp/app/bench/peak_tables.h"
#include "ulp/kernels/isa/isa.h"
#include "ulp/report/format.h"

namespace ulp::app {

namespace {

report::Cell cell_if_known(double value) {
  return value > 0 ? report::Cell(value) : report::Cell();
}

std::vector<report::Cell> row_of(std::string name, const std::string& memory, double used,
                                 int multiprocessors, const std::optional<measure::GpuPeak>& peak) {
  return {std::move(name),
          memory,
          report::format_bytes(used),
          cell_if_known(multiprocessors),
          cell_if_known(peak ? peak->operations / 1e12 : 0),
          cell_if_known(peak ? peak->bandwidth / 1e9 : 0)};
}

/// "1g.5gb", as the driver names the profiles of slices.
std::string profile_of(const measure::MigSlice& slice) {
  constexpr double kGiga = 1024.0 * 1024 * 1024;
  std::string name = std::to_string(slice.gpu_slices) + "g." +
                     std::to_string(std::lround(slice.memory_bytes / kGiga)) + "gb";
  if (slice.compute_slices != slice.gpu_slices) name = std::to_string(slice.compute_slices) + "c." + name;
  return name;
}

}  // namespace

report::Table gpu_table(const std::vector<measure::Gpu>& gpus) {
  report::Table table{
      .title = "GPUs",
      .caption =
          "Peaks are computed from units and clock: fp16 on tensor cores, dense. A slice has the share of "
          "its multiprocessors and of its memory.",
      .columns = {{"GPU"},
                  {"memory"},
                  {"in use"},
                  {"multiprocessors"},
                  {"peak", "Tflop/s", report::Better::none, 1},
                  {"bandwidth", "GB/s", report::Better::none, 0}}};
  for (const measure::Gpu& gpu : gpus) {
    table.add_row(row_of(std::to_string(gpu.index) + ": " + gpu.name, report::format_bytes(gpu.memory_bytes),
                         gpu.used_bytes, gpu.multiprocessors, measure::peak_of(gpu)));
    for (const measure::MigSlice& slice : gpu.slices) {
      table.add_row(
          row_of(std::to_string(gpu.index) + "." + std::to_string(slice.index) + ": MIG " + profile_of(slice),
                 report::format_bytes(slice.memory_bytes), slice.used_bytes, slice.multiprocessors,
                 measure::peak_of(gpu, slice)));
    }
  }
  return table;
}

std::vector<report::Table> peak_tables(int threads, bool quick,
                                       const std::function<void(const std::string&)>& progress) {
  const measure::Peaks one = measure::measure_peaks({.threads = 1, .quick = quick, .progress = progress});
  const measure::Peaks all =
      measure::measure_peaks({.threads = threads, .quick = quick, .progress = progress});
  return {math_table(all, &one), memory_table(all, &one)};
}

Devices find_devices(const std::string& nvml) {
  Devices devices{.machine = report::machine_facts(),
                  .kernels = {},
                  .chosen = kernels::to_string(kernels::selected_isa()),
                  .cuda_devices = static_cast<int>(torch::cuda::device_count()),
                  .gpus = measure::nvidia_gpus(nvml)};
  for (const kernels::Isa isa : kernels::available_isas())
    devices.kernels.emplace_back(kernels::to_string(isa));
  return devices;
}

}  // namespace ulp::app
