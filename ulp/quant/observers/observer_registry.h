// The observers that recipes can ask for by name: the built-in ones and those of users.
//
//   const ObserverKind mine = register_observer(
//       "mine", [](const TensorRecipe& recipe, const std::string& label) {
//         return std::make_shared<MyObserver>(label, recipe.scheme);
//       });
//   recipe.activation.observer = mine;      // in JSON: "observer": "mine"
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "ulp/base/export.h"
#include "ulp/quant/recipe.h"

namespace ulp::quant {

class Observer;

/// A new observer for a tensor that `label` names in messages.
using ObserverFactory =
    std::function<std::shared_ptr<Observer>(const TensorRecipe& recipe, const std::string& label)>;
/// Why the observer cannot work as the recipe says, as what follows "expected the recipe": "per tensor for
/// the observer histogram, got per channel 0"; empty where it can.
using ObserverObstacle = std::function<std::string(const TensorRecipe& recipe)>;

/// One observer of the table.
struct ObserverEntry {
  std::string name;
  ObserverFactory make;
  ObserverObstacle obstacle = {};  ///< none: it takes every recipe
};

/// Makes the name known to recipes, in C++ and in JSON, for the rest of the program. Throws ulp::Error for an
/// empty name, a name that is taken, and a missing factory. May be called by several threads.
ULP_API ObserverKind register_observer(const std::string& name, ObserverFactory make,
                                       ObserverObstacle obstacle = {});
/// Every name, the built-in ones first, later ones behind them. The list stays valid.
ULP_API std::span<const char* const> observer_names();
/// The obstacle of the recipe's observer.
ULP_API std::string observer_obstacle(const TensorRecipe& recipe);
/// The observer that a recipe asks for. Throws ulp::Error where its factory does, and for one that made none.
ULP_API std::shared_ptr<Observer> make_observer(const TensorRecipe& recipe, const std::string& label);

}  // namespace ulp::quant
