#include "ulp/quant/observers/observer_registry.h"

#include <deque>
#include <mutex>

#include "ulp/base/error.h"
#include "ulp/base/fields.h"
#include "ulp/quant/observers/calibration_observer.h"
#include "ulp/quant/observers/histogram_observer.h"
#include "ulp/quant/observers/observer.h"

namespace ulp::quant {
namespace {

/// Entries are never moved nor taken away, so that names can be handed out.
class Registry {
 public:
  static Registry& get() {
    static Registry registry;
    return registry;
  }

  /// Null for a name that is not known.
  const ObserverEntry* find(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    return find_locked(name);
  }
  std::vector<const char*> names() const {
    const std::lock_guard lock(mutex_);
    std::vector<const char*> names;
    for (const ObserverEntry& entry : entries_) names.push_back(entry.name.c_str());
    return names;
  }
  void add(ObserverEntry entry) {
    const std::lock_guard lock(mutex_);
    if (entry.name.empty() || !entry.make) {
      fail("quant.register_observer", "expected a name and a factory, got none");
    }
    if (find_locked(entry.name) != nullptr) {
      fail("quant.register_observer", "expected a name that is not taken, got '", entry.name, "'");
    }
    entries_.push_back(std::move(entry));
  }

 private:
  const ObserverEntry* find_locked(const std::string& name) const {
    for (const ObserverEntry& entry : entries_) {
      if (entry.name == name) return &entry;
    }
    return nullptr;
  }

  mutable std::mutex mutex_;
  /// The list of built-in observers: a line each.
  std::deque<ObserverEntry> entries_ = {
      MinMaxObserver::entry(),     MovingAverageObserver::entry(), HistogramObserver::entry(),
      PercentileObserver::entry(), EntropyObserver::entry(),       MseObserver::entry(),
      FixedObserver::entry(),
  };
};

}  // namespace

ObserverKind::ObserverKind(const std::string& name) {
  const ObserverEntry* entry = Registry::get().find(name);
  if (entry == nullptr) {
    fail("quant.ObserverKind", "expected an observer of ", one_of(observer_names()), ", got '", name, "'");
  }
  name_ = entry->name.c_str();
}

ObserverKind register_observer(const std::string& name, ObserverFactory make, ObserverObstacle obstacle) {
  Registry::get().add({name, std::move(make), std::move(obstacle)});
  return ObserverKind(name);
}

std::vector<const char*> observer_names() {
  return Registry::get().names();
}

std::string observer_obstacle(const TensorRecipe& recipe) {
  const ObserverEntry& entry = *Registry::get().find(recipe.observer.name());
  return entry.obstacle ? entry.obstacle(recipe) : "";
}

std::shared_ptr<Observer> make_observer(const TensorRecipe& recipe, const std::string& label) {
  const ObserverEntry& entry = *Registry::get().find(recipe.observer.name());
  std::shared_ptr<Observer> observer = entry.make(recipe, label);
  if (!observer) fail("quant.make_observer", "expected an observer from '", entry.name, "', got null");
  return observer;
}

}  // namespace ulp::quant
