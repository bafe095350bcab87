// How one layer is cut into tasks; internal to the room.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ulp/kernels/common/aligned_buffer.h"

namespace ulp::kernels {

constexpr int64_t kStageBytes = 128 << 10;  // prepared input of a task: stays in the second-level cache

/// The rows of output pixels of one task; the input of their pixels is equally spaced.
struct PixelRows {
  const uint8_t* a;     ///< input of the first pixel
  int64_t row_step;     ///< bytes from the input of a row to that of the next
  int64_t first_pixel;  ///< of the first row, in the whole output
  int64_t rows;
  int64_t pixels;  ///< of each row
};

/// The panels of a part of the output channels; parts are cut between pairs of panels.
struct PanelRange {
  int64_t begin, end;
};
inline PanelRange panels_of_part(int64_t panels, int64_t part, int64_t parts) {
  const int64_t pairs = ceil_div(panels, 2);
  return {2 * (part * pairs / parts), std::min(panels, 2 * ((part + 1) * pairs / parts))};
}

/// Tasks are (image, block of output rows, part of the output channels). For a flattened 1x1 layer a "row" is
/// one pixel and there is one image.
struct WorkSplit {
  int64_t images, rows, rows_per_block, blocks, parts;
  int64_t tasks() const { return images * blocks * parts; }

  struct Task {
    int64_t image, first, end, part;
  };
  Task task(int64_t i) const {
    const int64_t block = i / parts;
    const int64_t first = block % blocks * rows_per_block;
    return {block / blocks, first, std::min(rows, first + rows_per_block), i % parts};
  }
};

/// `cache_rows`: the rows whose staged input fits into the second-level cache; never exceeded. `grain`: rows
/// come in multiples of this. `max_parts`: how often the output channels can be cut. Cuts rows first, unless
/// the weights are the larger operand: then every task would read them all again.
inline WorkSplit split_work(int64_t images, int64_t rows, int64_t cache_rows, int64_t grain,
                            int64_t max_parts, double macs, bool weights_larger, int workers) {
  constexpr double kSmall = 1 << 18;  // multiply-adds that are done before a second thread has woken up
  const int64_t wanted =
      static_cast<int64_t>(std::clamp(macs / kSmall, 1.0, workers == 1 ? 1.0 : 2.0 * workers));
  WorkSplit s{images, rows, std::min(rows, cache_rows), 1, 1};
  s.blocks = ceil_div(rows, s.rows_per_block);
  if (images * s.blocks >= wanted) return s;
  if (weights_larger) s.parts = std::min(max_parts, ceil_div(wanted, images * s.blocks));
  const int64_t blocks = ceil_div(wanted, images * s.parts);
  if (blocks > s.blocks) {
    s.rows_per_block = std::min(s.rows_per_block, round_up(ceil_div(rows, blocks), grain));
    s.blocks = ceil_div(rows, s.rows_per_block);
  }
  return s;
}

}  // namespace ulp::kernels
