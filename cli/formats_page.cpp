#include "cli/formats_page.h"

#include <charconv>
#include <cmath>
#include <cstdio>

#include "ulp/formats/block.h"
#include "ulp/formats/format.h"

namespace ulp::cli {

namespace {

using formats::Format;
using formats::Kind;

constexpr const char* kIntroduction = R"(# Number formats

This page is written by `ulp formats --markdown`; a test compares them. `ulp formats 0.1 --as e4m3,bf16` shows what becomes of
a number, `ulp formats --report formats.html` draws the ranges.

)";

constexpr const char* kRules = R"(
## Rounding

- **nearest even**: to the nearest number, ties to the even mantissa.
- **toward zero**: truncation; a finite value never becomes larger than the largest number.
- **stochastic**: away from zero with the probability of what is cut off, so that the expectation is the value. 32 random bits are
  added below the last kept place; the bits of element *i* are word `i / 16 % 4` of block `i / 64 * 16 + i % 16` of Philox 4x32-10
  under a seed and a stream, so any split of the work over threads gives the same bits.

What rounds past the largest number, and infinity, follows the column *overflow*; a cast can ask for another rule that the format can
express. A NaN stays a NaN with its sign; in a format without NaN it becomes 0 (+1 in binary).

- `fp8_e4m3fn` is the e4m3 of the OCP 8-bit specification, with 448 and without infinities. `fp8_e4m3` is its IEEE-like sister with
  infinities and a maximum of 240; `fnuz` formats have no -0 and one NaN in its place.
- `tf32` has the range of fp32 and the mantissa of fp16, and travels in 32 bits.
- `e8m0` is a bare power of two. It takes the magnitude, sends ties to the larger power, and everything small to 2^-127.
- `binary` is the sign: numbers below 0 become -1, all others +1. Stochastically, +1 has the probability (1 + x) / 2.

Others differ past the ends of a format, so that files and tensors of theirs hold other codes there:

| what | here | others |
|---|---|---|
| beyond 448 in `fp8_e4m3fn`, infinity too | 448 | the same in torch 2.13 and ONNX Runtime 1.31 (`saturate` 1, the default); NaN in ml_dtypes 0.6, JAX and OpenVINO 2026.4, and with `saturate` 0 |
| 0 and numbers below 0 in `e8m0` | 2^-127, the magnitude | the same in torch 2.13; NaN in ml_dtypes 0.6; 2^-127 for all of them in ONNX Runtime 1.31, NaN with `saturate` 0 |
| infinity in `e8m0` | NaN | the same in torch 2.13, ml_dtypes 0.6 and ONNX Runtime 1.31 with `saturate` 0; 2^127 in ONNX Runtime by default |

## Block formats

)";

constexpr const char* kBlocks = R"(
MX follows the OCP Microscaling specification 1.0: the scale of a block is 2^(floor(log2(amax)) - e), where e is the exponent of the
element format's largest number; each value is divided by it and cast, and what is too large saturates. NVFP4 divides by an e4m3 scale,
amax / 6 over the scale of the whole tensor, which is amax / (448 * 6) of the tensor. Where the documents leave a choice: a block with an
infinity or a NaN gets the NaN scale and is NaN as a whole; an NVFP4 scale does not underflow to 0; a short last block is allowed.

## In C++

| what | one number (`ulp/formats`) | arrays, every instruction set (`ulp/kernels/convert/convert.h`) |
|---|---|---|
| value to code | `formats::encode(format, value, cast)` | `kernels::encode` |
| code to value | `formats::decode(format, code)` | `kernels::decode` |
| value as the format holds it | `formats::round_to_format` | `kernels::round_to_format` |
| blocks | `formats::quantize_block`, `dequantize_block` | `kernels::quantize_blocks`, `dequantize_blocks` |
| random bits | `formats::random_bits(key, index)` | `formats::random_bits_of_group` |

The scalar functions are the definition; the array functions give the same bits on every instruction set and any number of threads.
)";

report::Table as_report(const formats::Table& source, const char* title) {
  report::Table table{.title = title};
  for (const std::string& name : source.header) table.columns.push_back({name});
  for (const auto& row : source.rows) table.add_row({row.begin(), row.end()});
  return table;
}

/// The shortest text that reads back as the same double.
std::string shortest(double value) {
  char text[40];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

/// Every decimal digit of a value of a format: none has more than 767, the smallest normal number of fp64.
std::string all_digits(double value) {
  char text[800];
  std::snprintf(text, sizeof text, "%.767g", value);
  return text;
}

/// Ten digits, for differences.
std::string rounded(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.10g", value);
  return text;
}

std::string hexadecimal(uint64_t code, int bits) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%0*llx", (bits + 3) / 4, static_cast<unsigned long long>(code));
  return text;
}

/// Sign, exponent and mantissa apart: "0 01111011 1001101".
std::string fields(const Format& format, uint64_t code) {
  std::string text;
  for (int bit = format.bits() - 1; bit >= 0; --bit) {
    text += code >> bit & 1 ? '1' : '0';
    const bool after_sign = format.kind == Kind::floating && bit == format.bits() - 1;
    const bool after_exponent = format.kind == Kind::floating && bit == format.mantissa_bits && bit > 0;
    if (after_sign || after_exponent) text += ' ';
  }
  return text;
}

report::Chart ranges_chart() {
  report::Chart chart{
      report::ChartKind::ranges, "Ranges",
      "From the smallest to the largest magnitude. Below the smallest normal number precision fades "
      "out bit by bit; integers and e8m0 have no such part. Left out: fp64 (2^-1074 to 2^1024), and "
      "int2 and binary, which have one magnitude."};
  chart.x = {.title = "magnitude", .scale = report::Scale::log2, .minimum = 0x1p-160, .maximum = 0x1p128};
  report::Series normal{.name = "normal"}, subnormal{.name = "subnormal"};
  for (const Format& format : formats::all()) {
    if (format.bits() > 32 || format.max() == format.smallest_normal()) continue;
    normal.x.push_back(format.smallest_normal());
    normal.y.push_back(format.max());
    normal.labels.emplace_back(format.name);
    if (format.smallest_subnormal() == 0) continue;
    subnormal.x.push_back(format.smallest_subnormal());
    subnormal.y.push_back(format.smallest_normal());
    subnormal.labels.emplace_back(format.name);
  }
  chart.series = {normal, subnormal};
  return chart;
}

}  // namespace

report::Table traits_table() {
  return as_report(formats::formats_table(), "Number formats");
}

report::Table blocks_table() {
  return as_report(formats::blocks_table(), "Block formats");
}

report::Table conversions_table(const std::vector<double>& values, const std::vector<std::string>& names,
                                formats::Rounding rounding) {
  report::Table table{
      .title = "Rounded values",
      .columns = {{"number"}, {"format"}, {"code"}, {"bits"}, {"value"}, {"error"}, {"relative error"}}};
  std::vector<const Format*> wanted;
  for (const std::string& name : names) wanted.push_back(&formats::find(name));
  if (names.empty()) {
    for (const Format& format : formats::all()) wanted.push_back(&format);
  }
  for (double value : values) {
    for (const Format* format : wanted) {
      const uint64_t code = formats::encode(*format, value, {.rounding = rounding});
      const double back = formats::decode(*format, code);
      const bool exact = back == value || (std::isnan(back) && std::isnan(value));
      const double error = exact ? 0 : back - value;
      const double relative = exact ? 0 : error / value;
      table.add_row({shortest(value), std::string(format->name), hexadecimal(code, format->bits()),
                     fields(*format, code), all_digits(back), rounded(error),
                     value != 0 && std::isfinite(value) ? rounded(relative) : std::string("-")});
    }
  }
  return table;
}

report::Report formats_report(const report::Table& conversions) {
  report::Report report{.title = "Number formats", .created = report::timestamp()};
  if (!conversions.rows.empty()) report.tables.push_back(conversions);
  report.tables.push_back(traits_table());
  report.tables.push_back(blocks_table());
  report.charts = {ranges_chart()};
  return report;
}

std::string formats_markdown() {
  report::Table traits = traits_table(), blocks = blocks_table();
  traits.title = blocks.title = "";
  return kIntroduction + report::to_markdown(traits) + kRules + report::to_markdown(blocks) + kBlocks;
}

}  // namespace ulp::cli
