// The arguments of a program's nodes as operators take them.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <string>
#include <unordered_map>

#include "ulp/exchange/pt2/program.h"

namespace ulp::exchange::pt2 {

/// Values of a graph by their names.
using Values = std::unordered_map<std::string, c10::IValue>;

/// The value of this name. Throws FileError for one that was not made yet.
const c10::IValue& value_of(const Values& values, const std::string& name);

/// A number, or the name of one.
c10::IValue number_of(const ProgramArgument& argument, const Values& values);

/// The argument in the type that an operator's schema says, and nothing else: LibTorch does not check all that it is given.
/// A number in the place of a tensor becomes one as in Python. Throws FileError for a value of another type.
c10::IValue argument_of(const ProgramArgument& argument, const c10::Argument& wanted, const Values& values);

}  // namespace ulp::exchange::pt2
