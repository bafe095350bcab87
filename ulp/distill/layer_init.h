// A student that starts from layers of its teacher.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ulp/base/export.h"

namespace torch::nn {
class Module;
}

namespace ulp::distill {

/// Which of the teacher's layers a student's are: layer m of `student_layers` is the teacher's layer
/// ceil((m + 1) teacher_layers / student_layers) - 1, so that the last ones meet; every second one for half the depth.
/// TinyBERT's uniform map (Jiao et al. 2020) counts from 1. Throws ulp::Error for fewer teacher's layers than student's.
ULP_API std::vector<int64_t> layer_map(int64_t student_layers, int64_t teacher_layers);

/// The result of init_from().
struct InitReport {
  std::vector<std::string> copied;  ///< the student's names
  std::vector<std::string> left;    ///< names that the teacher lacks, or has in another shape
};

/// Copies parameters and buffers of the teacher to those of the student with the same names and shapes. Names with `layers` and a
/// number behind it ("encoder.layer" for "encoder.layer.3.output.dense.weight") take the layer that layer_map() says, or every
/// `every`-th one from 0 on where it is not 0 (DistilBERT: 2). Throws ulp::Error where one of both has no such layers, or nothing
/// could be copied.
ULP_API InitReport init_from(torch::nn::Module& student, const torch::nn::Module& teacher,
                             const std::string& layers = "", int64_t every = 0);

}  // namespace ulp::distill
