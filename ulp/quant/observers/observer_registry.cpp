#include "ulp/quant/observers/observer_registry.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <vector>

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
  std::span<const char* const> names() const {
    const std::lock_guard lock(mutex_);
    return names_.back();
  }
  std::span<const char* const> help() const {
    const std::lock_guard lock(mutex_);
    return help_.back();
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
    list_names();
  }

 private:
  Registry() { list_names(); }

  /// Lists that were handed out stay as they are; a registration makes new ones.
  void list_names() {
    std::vector<const char*>& names = names_.emplace_back();
    for (const ObserverEntry& entry : entries_) names.push_back(entry.name.c_str());
    help_.emplace_back(names.size(), "");
  }
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
  std::deque<std::vector<const char*>> names_, help_;
};

}  // namespace

ObserverKind::ObserverKind(const std::string& name) {
  const ObserverEntry* entry = Registry::get().find(name);
  if (entry == nullptr) {
    fail("quant.ObserverKind", "expected an observer of ", one_of(observer_names()), ", got '", name, "'");
  }
  name_ = entry->name.c_str();
}

std::span<const char* const> ObserverKind::choices() {
  return observer_names();
}

std::span<const char* const> ObserverKind::choice_help() {
  return Registry::get().help();
}

size_t ObserverKind::index() const {
  const std::span<const char* const> names = observer_names();
  const auto is_it = [&](const char* name) { return ObserverKind(name, Registered{}) == *this; };
  return static_cast<size_t>(std::ranges::find_if(names, is_it) - names.begin());
}

ObserverKind ObserverKind::at(size_t index) {
  return {observer_names()[index], Registered{}};
}

ObserverKind register_observer(const std::string& name, ObserverFactory make, ObserverObstacle obstacle) {
  Registry::get().add({name, std::move(make), std::move(obstacle)});
  return ObserverKind(name);
}

std::span<const char* const> observer_names() {
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
