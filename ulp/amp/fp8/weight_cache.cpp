#include "ulp/amp/fp8/weight_cache.h"

#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <map>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

namespace ulp::amp {

namespace {

using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

/// A view of some memory. The memory's address is its own as long as the entry's weak pointer lives.
using Place =
    std::tuple<const c10::StorageImpl*, int64_t, std::vector<int64_t>, std::vector<int64_t>, std::string>;

struct Entry {
  WeakStorage storage;
  const void* data;
  int64_t version;
  QuantizedWeight made;
};

struct Cache {
  std::mutex mutex;
  std::map<Place, Entry> entries;
};

Cache& cache() {
  static Cache one;
  return one;
}

/// A parameter that is trained, or a view of one: what is computed in the forward pass is new each time.
bool is_kept(const at::Tensor& weight) {
  const at::TensorBase& owner = weight.is_view() ? weight._base() : weight;
  return owner.is_leaf() && owner.requires_grad();
}

}  // namespace

QuantizedWeight quantized_weight(const at::Tensor& weight, const std::string& key,
                                 const std::function<QuantizedWeight()>& make) {
  if (!is_kept(weight)) return make();
  c10::StorageImpl* storage = weight.storage().unsafeGetStorageImpl();
  const Place place{storage, weight.storage_offset(), weight.sizes().vec(), weight.strides().vec(), key};
  {
    const std::scoped_lock lock(cache().mutex);
    const auto found = cache().entries.find(place);
    if (found != cache().entries.end() && found->second.data == weight.const_data_ptr() &&
        found->second.version == weight._version()) {
      return found->second.made;
    }
  }
  QuantizedWeight made = make();
  const std::scoped_lock lock(cache().mutex);
  std::erase_if(cache().entries, [](const auto& entry) { return entry.second.storage.expired(); });
  cache().entries.insert_or_assign(
      place, Entry{weight.storage().getWeakStorageImpl(), weight.const_data_ptr(), weight._version(), made});
  return made;
}

void forget_quantized_weights() {
  const std::scoped_lock lock(cache().mutex);
  cache().entries.clear();
}

}  // namespace ulp::amp
