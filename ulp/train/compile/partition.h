// How instructions are cut into pieces that the threads of a pool take, to the bits of the uncut instruction;
// internal to the room.
#pragma once

#include <cstdint>

#include "ulp/base/export.h"
#include "ulp/base/parallel.h"
#include "ulp/train/compile/plan.h"

namespace ulp::train::compiled {

/// A way to cut an instruction: its pieces are ranges of units. Two pieces write no number in common and read none that
/// the other one writes; where a sum goes over units, units are blocks whose size follows from sizes alone,
/// and each has a sum of its own.
struct Cut {
  int64_t units = 1;       ///< rows, columns, numbers or blocks of rows
  int64_t grain = 1;       ///< pieces begin at multiples of it
  int64_t fewest = 1;      ///< units of a piece that is worth its while whatever it takes
  double nanoseconds = 0;  ///< about what all of it takes on one thread
};

/// The cut of an instruction for the batch of `step`: what run.cpp does for a range [begin, end) of its
/// units.
Cut cut_of(const StepRun& step, const Instruction& one);

/// And of an instruction on images, whose units are those of image_units().
Cut image_cut(const StepRun& step, const Instruction& one);

/// Whether a product is cut by columns of its result, in place of rows.
bool cut_by_columns(const MatrixView& out);
/// The rows of one block where numbers of all rows are summed: a function of their width alone.
int64_t block_rows(int64_t width);
/// The blocks of rows of a matrix.
int64_t block_count(const MatrixView& of);

/// How many pieces it is run in; 1: the calling thread does all of it.
int64_t piece_count(const StepRun& step, const Cut& cut);
/// Runs piece(begin, end) for ranges that make up the units, on the threads of step.pool where it is worth
/// it.
void for_pieces(const StepRun& step, const Cut& cut,
                FunctionRef<void(int64_t begin, int64_t end, int worker)> piece);

/// Makes what for_pieces needs beside the plan, for a largest batch: nothing is allocated in a step.
void make_scratch(const StepPlan& plan, StepRun& step, int64_t batch);

/// For tests: the least work of a piece in nanoseconds, in all steps of the process. 0 cuts whatever can be
/// cut; a negative number puts back what it is without.
ULP_API void set_least_piece(double nanoseconds);

}  // namespace ulp::train::compiled
