// A report shaped like the real ones: every kind of chart, noise, a missing value, points that lie close
// together.
#pragma once

#include <cmath>
#include <cstdint>

#include "ulp/report/report.h"

namespace ulp::report {

inline Table sample_table() {
  Table table{.title = "Variants",
              .caption = "Test accuracy over 10,000 images, measured through the engine.",
              .columns = {{"variant"},
                          {"accuracy", "%", Better::higher, 2},
                          {"time per epoch", "s", Better::lower, 1},
                          {"peak memory", "MiB", Better::lower, 0},
                          {"file size", "MiB", Better::lower, 2},
                          {"latency, batch 1", "ms", Better::lower, 3},
                          {"throughput, batch 64", "images/s", Better::higher, 0},
                          {"throughput against fp32", "×", Better::higher, 2}}};
  table.add_row({"fp32", 91.87, 41.3, 812.0, 1.19, 0.412, 5210.0, 1.0});
  table.add_row({"bf16", 91.81, 24.9, 611.0, 0.61, 0.233, 11840.0, 2.27});
  table.add_row({"int8", 91.74, std::monostate(), std::monostate(), 0.32, 0.121, 24130.0, 4.63});
  return table;
}

inline Series sample_loss(const char* name, double floor, uint32_t seed) {
  Series series{.name = name};
  for (int step = 0; step < 2800; ++step) {
    seed = seed * 1664525u + 1013904223u;
    const double noise = (seed >> 8) / double(1 << 24) - 0.5;
    series.x.push_back(step);
    series.y.push_back((floor + 2.1 * std::exp(-step / 220.0) + 0.25 * std::exp(-step / 1500.0)) *
                       (1 + 0.35 * noise));
  }
  return series;
}

inline Report sample_report() {
  Report report{.title = "Residual network on Fashion-MNIST",
                .subtitle = "Trained in fp32 and bf16, quantized to int8, run by the ulp engine",
                .created = timestamp()};
  report.headlines = {{"4.63×", "int8 throughput against fp32 at batch 64"},
                      {"27 %", "size of the int8 file against fp32"},
                      {"−0.13 points", "int8 accuracy against fp32"},
                      {"1.66×", "bf16 training speed against fp32"}};
  report.tables = {sample_table()};
  Chart loss{ChartKind::line, "Training loss",
             "The three precisions learn alike: their smoothed losses lie on each other."};
  loss.x = {"step"};
  loss.y = {"cross-entropy loss", "nats", Scale::log10};
  loss.series = {sample_loss("fp32", 0.16, 1), sample_loss("bf16", 0.165, 2), sample_loss("fp16", 0.162, 3)};
  loss.series[2].x.resize(1400);
  loss.series[2].y.resize(1400);
  loss.smoothing = 0.98;
  Chart scale{ChartKind::step, "Loss scale of GradScaler",
              "It halves when a gradient overflows and doubles after 200 good steps in a row."};
  scale.x = {"step"};
  scale.y = {"loss scale", "", Scale::log2};
  Series trajectory{.name = "fp16"};
  double value = 65536;
  for (int step = 0; step < 1400; ++step) {
    if (step == 3 || step == 4 || step == 620 || step == 1003) value /= 2;
    if (step % 200 == 199) value *= 2;
    trajectory.x.push_back(step);
    trajectory.y.push_back(value);
  }
  scale.series = {trajectory};
  Chart size{ChartKind::scatter, "Accuracy against file size",
             "int8 keeps the accuracy at about a quarter of the bytes."};
  size.x = {"file size", "MiB", Scale::linear, Better::lower};
  size.y = {"test accuracy", "%", Scale::linear, Better::higher};
  size.series = {{"fp32", {1.19}, {91.87}, {"fp32"}},
                 {"bf16", {0.61}, {91.81}, {"bf16"}},
                 {"int8", {0.32}, {91.74}, {"int8"}}};
  Chart speed{ChartKind::scatter, "Accuracy against throughput",
              "Each step to the right is faster; points close together differ little."};
  speed.x = {"throughput, batch 64", "images/s", Scale::log10, Better::higher};
  speed.y = size.y;
  speed.series = {{"fp32", {5210, 5300}, {91.87, 91.87}, {"fp32 engine", "fp32 eager"}},
                  {"bf16", {11840, 11300}, {91.81, 91.82}, {"bf16 engine", "bf16 engine, channels last"}},
                  {"int8", {24130}, {91.74}, {"int8 engine"}}};
  Chart bars{ChartKind::bars, "Throughput by batch size", "The engine gains most at large batches."};
  bars.x = {"batch"};
  bars.y = {"throughput", "images/s", Scale::linear, Better::higher};
  bars.series = {{"fp32", {}, {2427, 4310, 5210}, {"1", "8", "64"}},
                 {"bf16", {}, {4290, 9120, 11840}, {"1", "8", "64"}},
                 {"int8", {}, {8260, 17800, 24130}, {"1", "8", "64"}}};
  Chart ranges{ChartKind::ranges, "Ranges", "bf16 reaches as far as fp32."};
  ranges.x = {"magnitude", "", Scale::log2};
  ranges.series = {{"normal", {0x1p-14, 0x1p-126}, {65504, 0x1p127}, {"fp16", "bf16"}},
                   {"subnormal", {0x1p-24, 0x1p-133}, {0x1p-14, 0x1p-126}, {"fp16", "bf16"}}};
  report.charts = {loss, scale, size, speed, bars, ranges};
  Chart histogram{ChartKind::histogram, "Gradients and the range of fp16", "Scaling moves them into it."};
  histogram.x = {"magnitude", "", Scale::log2};
  histogram.y = {"share of values", "%"};
  histogram.series = {{"without scale"}, {"with loss scale 2^12"}};
  for (int e = -44; e < 22; ++e) {
    for (size_t s = 0; s < 2; ++s) {
      const double away = (e + 24 - (s == 0 ? 0 : 12)) / 5.0;
      histogram.series[s].x.push_back(std::ldexp(std::sqrt(2.0), e));
      histogram.series[s].y.push_back(9 * std::exp(-away * away));
    }
  }
  histogram.bands = {{.to = 0x1p-25, .label = "become zero", .detail = "41 % → 0.2 %", .warn = true},
                     {.from = 0x1p-25, .to = 0x1p-14, .label = "fp16 subnormal", .detail = "56 % → 29 %"},
                     {.from = 0x1p-14, .to = 65536, .label = "fp16 normal", .detail = "3 % → 71 %"},
                     {.from = 65536, .label = "overflow", .detail = "0 % → 0 %", .warn = true}};
  report.charts.push_back(histogram);
  report.notes = {"Ratios are taken within one run on one machine.",
                  "Peak memory is the process's, during training."};
  report.settings = {
      {"Epochs", "3"}, {"Batch size", "128"}, {"Optimizer", "AdamW, lr 0.003, one cycle"}, {"Seed", "1"}};
  report.machine = machine_facts();
  return report;
}

}  // namespace ulp::report
