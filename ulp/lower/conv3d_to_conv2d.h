// Volumes [N, C, D, H, W]: their layout is nhwc, so that each slice of depth is an image.
#pragma once

#include <string>

#include "ulp/lower/builder.h"

namespace ulp::lowering {

/// Emits a step of images that works along the depth of a volume of this form: it reads [N, C, D, H, W] as
/// the image [N, H W C, D, 1], whose bytes are the same, and may change the size D. Returns the volume that
/// it makes.
int32_t along_depth(Builder& builder, const graph::Node& node, int32_t volume, runtime::Step step,
                    const Form& form);

}  // namespace ulp::lowering
