#include "ulp/kernels/conv/staging.h"

#include <algorithm>
#include <cstring>

#include "ulp/kernels/conv/conv_variants.h"

namespace ulp::kernels {
namespace {

constexpr int64_t kSlack = 64;  // a vector may be loaded from the last element
constexpr int64_t kWay = 4096;  // addresses so far apart lie in one set of the first-level cache

}  // namespace

Staging::Staging(const ConvConfig& config, DataType stage, CopyFn copy, bool reads_beyond, bool spread)
    : shape_(config.shape),
      input_bytes_(ulp::element_bytes(config.input)),
      element_bytes_(ulp::element_bytes(stage)),
      pixel_bytes_(element_bytes_ * shape_.in_channels),
      row_bytes_(pixel_bytes_ * (shape_.in_w + 2 * shape_.pad_w)),
      pad_value_(config.input == DataType::u8 ? config.input_q.zero_point : 0),
      copy_(copy),
      copies_(copy != nullptr || reads_beyond || shape_.pad_h > 0 || shape_.pad_w > 0) {
  if (!spread || !is_flat(shape_) || pixel_bytes_ % kWay != 0) return;
  gap_bytes_ = 64;
  pixel_bytes_ += gap_bytes_;
  copies_ = true;
}

int64_t Staging::bytes_for_rows(int64_t out_rows) const {
  if (!copies_) return 0;
  const int64_t in_rows = (out_rows - 1) * shape_.stride_h + shape_.dilation_h * (shape_.kernel_h - 1) + 1;
  return round_up(in_rows * row_bytes_ + kSlack, 64);
}

int64_t Staging::bytes_for_pixels(int64_t pixels) const {
  return copies_ ? round_up(pixels * pixel_bytes_ + kSlack, 64) : 0;
}

void Staging::fill(uint8_t* to, int64_t elements) const {
  if (element_bytes_ == 2) {
    std::fill_n(reinterpret_cast<uint16_t*>(to), elements, static_cast<uint16_t>(pad_value_));
  } else {
    std::memset(to, element_bytes_ == 1 ? pad_value_ : 0, static_cast<size_t>(elements * element_bytes_));
  }
}

void Staging::copy(const uint8_t* from, uint8_t* to, int64_t elements) const {
  if (copy_ != nullptr) {
    copy_(from, to, elements);
  } else {
    std::memcpy(to, from, static_cast<size_t>(elements * element_bytes_));
  }
}

const uint8_t* Staging::rows(const void* x, int64_t image, int64_t first, int64_t end,
                             uint8_t* buffer) const {
  const int64_t line = shape_.in_w * shape_.in_channels;
  const uint8_t* start = static_cast<const uint8_t*>(x) + image * shape_.in_h * line * input_bytes_;
  if (!copies_) return start + first * shape_.stride_h * line * input_bytes_;
  const int64_t top = first * shape_.stride_h - shape_.pad_h;
  const int64_t count = (end - 1 - first) * shape_.stride_h + shape_.dilation_h * (shape_.kernel_h - 1) + 1;
  const int64_t edge = shape_.pad_w * shape_.in_channels;
  // The right edge of a row and the left edge of the next one are neighbours: one fill for both.
  fill(buffer, edge);
  for (int64_t r = 0; r < count; ++r) {
    uint8_t* to = buffer + r * row_bytes_ + edge * element_bytes_;
    const int64_t ih = top + r;
    if (ih < 0 || ih >= shape_.in_h) {
      fill(to, line);
    } else {
      copy(start + ih * line * input_bytes_, to, line);
    }
    fill(to + line * element_bytes_, r + 1 < count ? 2 * edge : edge);
  }
  return buffer;
}

const uint8_t* Staging::pixels(const void* x, int64_t first, int64_t end, uint8_t* buffer) const {
  const uint8_t* from = static_cast<const uint8_t*>(x) + first * shape_.in_channels * input_bytes_;
  if (!copies_) return from;
  if (gap_bytes_ == 0) {
    copy(from, buffer, (end - first) * shape_.in_channels);
    return buffer;
  }
  for (int64_t i = 0; i < end - first; ++i)
    copy(from + i * shape_.in_channels * input_bytes_, buffer + i * pixel_bytes_, shape_.in_channels);
  return buffer;
}

}  // namespace ulp::kernels
