#include "ulp/kernels/training/conv_products.h"

#include <algorithm>

#include "ulp/kernels/isa/dispatch.h"
#include "ulp/kernels/training/bf16_pairs.h"
#include "ulp/kernels/training/conv_blocks.h"

namespace ulp::kernels {
namespace {

constexpr Variant<const ConvProductOps*> kConvProductTables[] = {
    {Isa::avx512, ULP_ON_X86(&kConvProductOpsAvx512)},
    {Isa::avx2, ULP_ON_X86(&kConvProductOpsAvx2)},
    {Isa::portable, &kConvProductOpsPortable}};

/// The word of channel `channel` of `of`, from its first number; `step` floats from it to the next one.
float conv_word(const ConvWords& of, int64_t channel, const float* from, int64_t step) {
  if (of.numbers == 0) return *from;
  const uint32_t first = rounded_to_bf16(*from);
  if (of.numbers == 1) return bits_to_float(first);
  const bool second = channel * of.numbers + 1 < of.channels;
  return bits_to_float(Bf16Pairs::pair(first, second ? rounded_to_bf16(from[step]) : 0U));
}

/// Calls each(place in the packed weights, place in the weights, input channel) for all of the panels [begin, end), place after
/// place in the packed ones; a place of -1 lies behind the last channel.
template <typename Each>
void for_each_packed(const StepConv& conv, const ConvWeightSteps& steps, int64_t begin, int64_t end,
                     const Each& each) {
  const int64_t inputs = conv.group_inputs(), outputs = conv.group_outputs(), taps = conv.taps();
  const int64_t of_group = conv_ceil(outputs, kConvPanel);
  for (int64_t panel = begin; panel < end; ++panel) {
    const int64_t group = panel / of_group, first = panel % of_group * kConvPanel;
    int64_t place = (group * panel_columns(outputs) + first) * taps * inputs;
    const int64_t width = panel_width(outputs, first);
    for (int64_t tap = 0; tap < taps; ++tap) {
      for (int64_t c = 0; c < inputs; ++c) {
        for (int64_t j = 0; j < width; ++j, ++place) {
          const int64_t output = first + j;
          each(place,
               output < outputs
                   ? (group * outputs + output) * steps.output + c * steps.input + tap * steps.tap
                   : -1,
               c);
        }
      }
    }
  }
}

/// A panel of one phase of the gradient of the input, whose panels begin at `to`.
void pack_phase(const StepConv& conv, int64_t group, int64_t first, const ConvPhase& rows,
                const ConvPhase& columns, const float* weights, const ConvWeightSteps& steps, float* to,
                const ConvWords& words) {
  const int64_t inputs = conv.group_inputs(), outputs = conv.group_outputs();
  const int64_t width = panel_width(inputs, first);
  to += first * rows.count * columns.count * outputs;
  for (int64_t h = 0; h < rows.count; ++h) {
    for (int64_t w = 0; w < columns.count; ++w) {
      const int64_t tap = (rows.last - h * rows.step) * conv.kernel_width + columns.last - w * columns.step;
      for (int64_t k = 0; k < outputs; ++k, to += width) {
        const int64_t output = (group * outputs + k) * std::max<int64_t>(1, words.numbers);
        const float* from = weights + output * steps.output + tap * steps.tap;
        for (int64_t j = 0; j < width; ++j)
          to[j] =
              first + j < inputs ? conv_word(words, k, from + (first + j) * steps.input, steps.output) : 0.0F;
      }
    }
  }
}

}  // namespace

const ConvProductOps& conv_product_ops(Isa isa) {
  return *first_admitted(kConvProductTables, isa);
}

const ConvProductOps& conv_word_ops(Isa isa) {
#if defined(__x86_64__)
  if (has_fast_bf16_pairs(isa)) return kConvWordOpsAvx512Bf16;
#endif
  return conv_product_ops(isa);
}

bool conv_fits(const StepConv& conv) {
  if (conv.depthwise()) return true;
  if (conv.taps() > kConvTaps) return false;
  const int64_t rows = (conv.kernel_height - 1) * conv.dilation_height;
  const int64_t columns = (conv.kernel_width - 1) * conv.dilation_width;
  const int64_t forward = (rows + 1) * (columns + 1) * conv.group_inputs();
  const int64_t backward =
      (rows / conv.stride_height + 3) * (columns / conv.stride_width + 3) * conv.group_outputs();
  return forward <= kConvScratch && backward <= kConvScratch;
}

int64_t conv_forward_units(const StepConv& conv, int64_t batch) {
  return conv_forward_blocks(conv).units(batch);
}
int64_t conv_input_units(const StepConv& conv, int64_t batch) {
  return conv_input_blocks(conv).units(batch);
}
int64_t conv_weight_units(const StepConv& conv) {
  const int64_t run = conv_run_taps(conv);
  return conv.groups * conv_ceil(conv.group_outputs(), kConvPanel) * (conv.taps() / run) *
         conv_ceil(run * conv.group_inputs(), kConvWeightRows);
}

ConvWeightSteps contiguous_weight_steps(const StepConv& conv) {
  return {conv.group_inputs() * conv.taps(), conv.taps(), 1};
}

int64_t packed_conv_floats(const StepConv& conv) {
  return conv.groups * conv.taps() * conv.group_inputs() * panel_columns(conv.group_outputs());
}
int64_t packed_conv_input_floats(const StepConv& conv) {
  return conv.groups * conv.taps() * conv.group_outputs() * panel_columns(conv.group_inputs());
}

int64_t conv_pack_units(const StepConv& conv) {
  return conv.groups * conv_ceil(conv.group_outputs(), kConvPanel);
}
int64_t conv_pack_input_units(const StepConv& conv) {
  return conv.groups * conv_ceil(conv.group_inputs(), kConvPanel);
}

void pack_conv_forward(const StepConv& conv, const float* weights, const ConvWeightSteps& steps,
                       float* packed, int64_t begin, int64_t end, const ConvWords& words) {
  const ConvWeightSteps of_words{steps.output, steps.input * std::max<int64_t>(1, words.numbers), steps.tap};
  for_each_packed(conv, of_words, begin, end, [&](int64_t place, int64_t from, int64_t channel) {
    packed[place] = from < 0 ? 0.0F : conv_word(words, channel, weights + from, steps.input);
  });
}

void pack_conv_input(const StepConv& conv, const float* weights, const ConvWeightSteps& steps, float* packed,
                     int64_t begin, int64_t end, const ConvWords& words) {
  const int64_t inputs = conv.group_inputs(), of_group = conv_ceil(inputs, kConvPanel);
  const int64_t group_floats = packed_conv_input_floats(conv) / conv.groups;
  for (int64_t panel = begin; panel < end; ++panel) {
    const int64_t group = panel / of_group, first = panel % of_group * kConvPanel;
    float* phase = packed + group * group_floats;
    for (int64_t down = 0; down < conv.stride_height; ++down) {
      for (int64_t across = 0; across < conv.stride_width; ++across) {
        const ConvPhase rows = conv_phase(conv.kernel_height, conv.stride_height, conv.dilation_height, down);
        const ConvPhase columns =
            conv_phase(conv.kernel_width, conv.stride_width, conv.dilation_width, across);
        pack_phase(conv, group, first, rows, columns, weights, steps, phase, words);
        phase += rows.count * columns.count * conv.group_outputs() * panel_columns(inputs);
      }
    }
  }
}

void unpack_conv_weights(const StepConv& conv, const float* packed, bool adds, float* weights,
                         const ConvWeightSteps& steps, int64_t begin, int64_t end) {
  for_each_packed(conv, steps, begin, end, [&](int64_t place, int64_t to, int64_t) {
    if (to >= 0) weights[to] = adds ? weights[to] + packed[place] : packed[place];
  });
}

}  // namespace ulp::kernels
