// Products of codes that are made as the network runs: DynamicQuantizeLinear, MatMulInteger, Cast, Mul and Add as one.
#include <torch/types.h>

#include <algorithm>
#include <optional>

#include "ulp/exchange/onnx_import/file_values.h"
#include "ulp/exchange/onnx_import/rewrite.h"

namespace ulp::exchange::onnx_import {

namespace {

using at::Tensor;

/// What a layer that quantizes its input reads.
struct DynamicProduct {
  std::string input, codes, scale, bias;
};

class DynamicProductRewriter {
 public:
  explicit DynamicProductRewriter(FileGraph& graph) : graph_(graph), values_(graph) {}

  void run() {
    // The sum with a bias comes behind the product: the last node of a layer becomes the layer.
    std::vector<std::pair<FileNode*, DynamicProduct>> found;
    for (FileNode& node : graph_.nodes) {
      if (const auto product = product_of(node)) found.emplace_back(&node, *product);
    }
    for (const auto& [node, product] : found) become(*node, product);
    if (found.empty()) return;
    remove_unread(graph_, [](const FileNode& node) {
      return node.op == "DynamicQuantizeLinear" || node.op == "MatMulInteger" || node.op == "Cast" ||
             node.op == "Mul" || node.domain == kOwnDomain;
    });
  }

 private:
  static std::string read(const FileNode& node, size_t i) {
    return i < node.inputs.size() ? node.inputs[i] : "";
  }

  const FileNode* maker_of(const std::string& value, std::string_view op) const {
    const FileNode* node = values_.maker(value);
    return node != nullptr && node->op == op ? node : nullptr;
  }

  /// int8 codes [in, out] without a zero point.
  bool is_weight(const std::string& codes, const std::string& zero) const {
    const Tensor stored = values_.stored(codes), zeros = values_.stored(zero);
    const bool fits = stored.defined() && stored.dim() == 2 && stored.scalar_type() == at::kChar;
    return fits && (zero.empty() || (zeros.defined() && !zeros.any().item<bool>()));
  }

  std::optional<DynamicProduct> product_of(const FileNode& node) const {
    if (node.op == "DynamicQuantizeMatMul" && node.domain == "com.microsoft" &&
        is_weight(read(node, 1), read(node, 3)) && values_.stored(read(node, 2)).defined())
      return DynamicProduct{read(node, 0), read(node, 1), read(node, 2), read(node, 4)};
    if (node.op == "MatMulIntegerToFloat" && node.domain == "com.microsoft") return to_float(node);
    if (!node.domain.empty() || node.inputs.size() != 2) return std::nullopt;
    if (node.op == "Add") return with_bias(node);
    return node.op == "Mul" ? scaled(node) : std::nullopt;
  }

  /// x of DynamicQuantizeLinear(x), whose codes, scale and zero point these are.
  std::optional<std::string> quantized(const std::string& codes, const std::string& scale,
                                       const std::string& zero) const {
    const FileNode* maker = maker_of(codes, "DynamicQuantizeLinear");
    const bool same = maker != nullptr && maker->outputs.size() == 3 && maker->inputs.size() == 1 &&
                      maker->outputs[0] == codes && maker->outputs[1] == scale && maker->outputs[2] == zero;
    return same ? std::optional(maker->inputs[0]) : std::nullopt;
  }

  std::optional<DynamicProduct> to_float(const FileNode& node) const {
    const auto x = quantized(read(node, 0), read(node, 2), read(node, 4));
    if (!x || !is_weight(read(node, 1), read(node, 5)) || !values_.stored(read(node, 3)).defined())
      return std::nullopt;
    return DynamicProduct{*x, read(node, 1), read(node, 3), read(node, 6)};
  }

  /// Numbers of sums in int32 that one node alone reads.
  const FileNode* sums_of(const std::string& value) const {
    constexpr int64_t kFloat = 1;
    const FileNode* cast = values_.reads(value) == 1 ? maker_of(value, "Cast") : nullptr;
    const FileAttribute* to = cast == nullptr ? nullptr : cast->find("to");
    if (to == nullptr || to->i != kFloat) return nullptr;
    return maker_of(read(*cast, 0), "MatMulInteger");
  }

  std::optional<DynamicProduct> of_sums(const FileNode& sums, const std::string& scale,
                                        const std::string& of_weight) const {
    const auto x = quantized(read(sums, 0), scale, read(sums, 2));
    const bool known = values_.stored(of_weight).defined() && is_weight(read(sums, 1), read(sums, 3));
    return x && known ? std::optional(DynamicProduct{*x, read(sums, 1), of_weight, ""}) : std::nullopt;
  }

  /// Sums times both scales, in each order.
  std::optional<DynamicProduct> scaled(const FileNode& node) const {
    for (const size_t i : {0, 1}) {
      const std::string &one = node.inputs[i], &other = node.inputs[1 - i];
      if (const FileNode* sums = sums_of(one)) {
        const FileNode* scales = maker_of(other, "Mul");
        for (const size_t k : {0, 1}) {
          if (scales == nullptr || scales->inputs.size() != 2) break;
          if (auto found = of_sums(*sums, scales->inputs[k], scales->inputs[1 - k])) return found;
        }
      }
      const FileNode* inner = values_.reads(one) == 1 ? maker_of(one, "Mul") : nullptr;
      for (const size_t k : {0, 1}) {
        if (inner == nullptr || inner->inputs.size() != 2) break;
        const FileNode* sums = sums_of(inner->inputs[k]);
        if (sums == nullptr) continue;
        if (auto found = of_sums(*sums, inner->inputs[1 - k], other)) return found;
        if (auto found = of_sums(*sums, other, inner->inputs[1 - k])) return found;
      }
    }
    return std::nullopt;
  }

  std::optional<DynamicProduct> with_bias(const FileNode& node) const {
    for (const size_t i : {0, 1}) {
      const std::string &product = node.inputs[i], &bias = node.inputs[1 - i];
      const FileNode* maker = values_.reads(product) == 1 ? values_.maker(product) : nullptr;
      const Tensor stored = values_.stored(bias);
      if (maker == nullptr || maker->op == "Add" || !stored.defined() || stored.dim() != 1) continue;
      auto found = product_of(*maker);
      if (!found || !found->bias.empty() || stored.size(0) != values_.stored(found->codes).size(1)) continue;
      found->bias = bias;
      return found;
    }
    return std::nullopt;
  }

  static void become(FileNode& node, const DynamicProduct& product) {
    node.op = "LinearDynamic";
    node.domain = kOwnDomain;
    node.inputs = {product.input, product.codes, product.scale, product.bias};
    node.attributes.clear();
  }

  FileGraph& graph_;
  FileValues values_;
};

}  // namespace

void rewrite_dynamic_products(FileGraph& graph) {
  DynamicProductRewriter(graph).run();
}

}  // namespace ulp::exchange::onnx_import
