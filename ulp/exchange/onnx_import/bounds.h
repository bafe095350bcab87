// How large the result of a node can become, from the sizes of its inputs: asked before it is computed.
#pragma once

#include "ulp/exchange/onnx_import/run.h"

namespace ulp::exchange::onnx_import {

/// Elements of all results of a node, or more. A double: sizes of strangers overflow integers.
using BoundFunction = double (*)(Call&);

double broadcast(Call& call);      ///< of all inputs: what element-by-element nodes give
double first_input(Call& call);    ///< no more than input 0
double twice(Call& call);          ///< two results of its size
double sum_of_inputs(Call& call);  ///< joined parts
double matrix_product(Call& call);
double integer_product(Call& call);  ///< with both operands in another type
double einsum_product(Call& call);
double convolution(Call& call);
double transposed_convolution(Call& call);
double pooled(Call& call);    ///< an image with its padding
double gathered(Call& call);  ///< rows by indices
double by_index(Call& call);  ///< one element, or one row, an index
double filled(Call& call);    ///< the sizes are input 0
double expanded(Call& call);
double tiled(Call& call);
double padded_bound(Call& call);
double range_bound(Call& call);
double one_hot_bound(Call& call);
double recurrent_bound(Call& call);

}  // namespace ulp::exchange::onnx_import
