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

/// Tasks are (part of the output channels, image, block of output rows). Blocks are equally long, up to one grain. For a
/// flattened 1x1 layer a "row" is one pixel and there is one image.
struct WorkSplit {
  int64_t images, rows, grain, blocks, parts;
  int64_t tasks() const { return images * blocks * parts; }

  struct Task {
    int64_t image, first, end, part;
  };
  /// Neighbours have the same part: a worker reads few of the weights.
  Task task(int64_t i) const {
    const int64_t block = i % blocks;
    return {i / blocks % images, bound(block), bound(block + 1), i / (blocks * images)};
  }

 private:
  int64_t bound(int64_t block) const {
    return std::min(rows, block * ceil_div(rows, grain) / blocks * grain);
  }
};

/// What is to be cut.
struct Work {
  int64_t images, rows;
  int64_t cache_rows;  ///< the rows whose staged input fits into the second-level cache; never exceeded
  int64_t grain;       ///< rows come in multiples of this, and cache_rows is one
  int64_t pairs;       ///< of panels: the output channels are cut between them; 1: not at all
  double macs;         ///< multiply-adds, as many as a tile kernel does in the same time
  int64_t weight_bytes, input_bytes;
};

/// The largest share of a worker, each having as many neighbouring tasks, beside that of an equal cut (1 at the least).
inline double imbalance(const WorkSplit& split, int64_t pairs, int workers) {
  const int64_t tasks = split.tasks();
  int64_t largest = 0;
  for (int64_t w = 0; w < workers; ++w) {
    int64_t load = 0;
    for (int64_t i = w * tasks / workers; i < (w + 1) * tasks / workers; ++i) {
      const WorkSplit::Task task = split.task(i);
      load +=
          (task.end - task.first) * ((task.part + 1) * pairs / split.parts - task.part * pairs / split.parts);
    }
    largest = std::max(largest, load);
  }
  return static_cast<double>(largest * workers) / static_cast<double>(split.images * split.rows * pairs);
}

/// The cut after which the slowest worker ends first: equal shares, and operands that are read again seldom.
inline WorkSplit split_work(const Work& work, int workers) {
  constexpr double kSmall = 1 << 18;    // multiply-adds that are done before a second thread has woken up
  constexpr double kMacsOfAByte = 4.0;  // done while a byte comes from beyond the second level
  const int64_t units = ceil_div(work.rows, work.grain);
  const int64_t least = ceil_div(units, std::max<int64_t>(1, work.cache_rows / work.grain));
  const auto wanted =
      static_cast<int64_t>(std::clamp(work.macs / kSmall, 1.0, workers == 1 ? 1.0 : 2.0 * workers));
  const auto cut = [&](int64_t parts, int64_t blocks) {
    return WorkSplit{work.images, work.rows, work.grain, std::clamp(blocks, least, units), parts};
  };
  WorkSplit best = cut(1, 1);
  if (wanted == 1) return best;
  double least_cost = 0;
  for (int64_t parts = 1; parts <= std::min(work.pairs, wanted); parts += std::max<int64_t>(1, parts / 4)) {
    const int64_t enough = std::max(least, ceil_div(wanted, work.images * parts));
    for (const int64_t blocks : {enough, round_up(enough, workers)}) {
      const WorkSplit split = cut(parts, blocks);
      const double read = static_cast<double>(work.weight_bytes * split.images * split.blocks) +
                          static_cast<double>(work.input_bytes * parts);
      const bool many = split.tasks() > int64_t{16} * workers;  // whoever is done takes tasks of others
      const double cost =
          work.macs * (many ? 1.0 : imbalance(split, work.pairs, workers)) + kMacsOfAByte * read;
      if (least_cost == 0 || cost < least_cost) {
        least_cost = cost;
        best = split;
      }
    }
  }
  return best;
}

}  // namespace ulp::kernels
