// Passes over arrays in vectors of the compiler. For files that define ULP_VECTOR_BYTES.
#pragma once

#include "ulp/kernels/peak/peak_tables.h"

namespace ulp::kernels {
namespace {

using Doubles = double __attribute__((vector_size(ULP_VECTOR_BYTES)));
constexpr int64_t kLanes = ULP_VECTOR_BYTES / 8;
constexpr double kFactor = 3;  // STREAM's

Doubles* at(double* p) {
  return reinterpret_cast<Doubles*>(p);
}

double read_pass(double* a, double*, double*, int64_t count) {
  constexpr int kSums = 8;
  Doubles sums[kSums] = {};
  for (int64_t i = 0; i < count / kLanes; i += kSums) {
#pragma GCC unroll 8
    for (int s = 0; s < kSums; ++s) sums[s] += at(a)[i + s];
  }
  double total = 0;
  for (const Doubles& sum : sums) {
    for (int lane = 0; lane < kLanes; ++lane) total += sum[lane];
  }
  return total;
}

/// Eight vectors at a time; the compiler makes no call of memcpy() of it.
template <typename Body>
double each_vector(int64_t count, Body body) {
  constexpr int kAtATime = 8;
  for (int64_t i = 0; i < count / kLanes; i += kAtATime) {
#pragma GCC unroll 8
    for (int s = 0; s < kAtATime; ++s) body(i + s);
    __asm__ volatile("" ::: "memory");
  }
  return 0;
}

double copy_pass(double* a, double*, double* c, int64_t count) {
  return each_vector(count, [=](int64_t i) { at(c)[i] = at(a)[i]; });
}
double scale_pass(double*, double* b, double* c, int64_t count) {
  return each_vector(count, [=](int64_t i) { at(b)[i] = kFactor * at(c)[i]; });
}
double add_pass(double* a, double* b, double* c, int64_t count) {
  return each_vector(count, [=](int64_t i) { at(c)[i] = at(a)[i] + at(b)[i]; });
}
double triad_pass(double* a, double* b, double* c, int64_t count) {
  return each_vector(count, [=](int64_t i) { at(a)[i] = at(b)[i] + kFactor * at(c)[i]; });
}

#define ULP_MEMORY_TABLE                                       \
  {                                                            \
    { read_pass, copy_pass, scale_pass, add_pass, triad_pass } \
  }

}  // namespace
}  // namespace ulp::kernels
