#include <array>

#include "ulp/runtime/ops/op.h"

namespace ulp::runtime {

extern const OpDef kConvOp, kLinearOp, kAddOp, kReluOp, kMaxPoolOp, kAvgPoolOp, kGlobalAvgPoolOp, kFlattenOp,
    kSoftmaxOp, kConcatOp, kSliceOp, kChannelShuffleOp, kConvertOp, kSelectOp, kLayerNormOp, kEmbeddingOp,
    kTokenMaskOp, kAttentionOp, kDynamicLinearOp, kLstmOp, kGruOp, kTokenMeanOp, kDepthToSpaceOp,
    kResizeNearestOp, kResizeBilinearOp, kUnsqueezeOp, kSqueezeOp;

namespace {
// In the order of the enumerators.
constexpr std::array kOps = {
    &kConvOp,           &kLinearOp,    &kAddOp,       &kReluOp,      &kMaxPoolOp,      &kAvgPoolOp,
    &kGlobalAvgPoolOp,  &kFlattenOp,   &kSoftmaxOp,   &kConcatOp,    &kSliceOp,        &kChannelShuffleOp,
    &kConvertOp,        &kSelectOp,    &kLayerNormOp, &kEmbeddingOp, &kTokenMaskOp,    &kAttentionOp,
    &kDynamicLinearOp,  &kLstmOp,      &kGruOp,       &kTokenMeanOp, &kDepthToSpaceOp, &kResizeNearestOp,
    &kResizeBilinearOp, &kUnsqueezeOp, &kSqueezeOp};
}  // namespace

const OpDef& op_def(Op op) {
  return *kOps[static_cast<size_t>(op)];
}

const OpDef* find_op(const std::string& name) {
  for (const OpDef* def : kOps) {
    if (name == def->name) return def;
  }
  return nullptr;
}

const char* to_string(Op op) {
  return static_cast<size_t>(op) < kOps.size() ? op_def(op).name : "unknown";
}

}  // namespace ulp::runtime
