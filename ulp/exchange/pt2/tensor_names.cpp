#include "ulp/exchange/pt2/tensor_names.h"

#include <algorithm>
#include <string_view>

namespace ulp::exchange::pt2 {

namespace {

using Words = std::set<std::string_view>;

bool is_python_keyword(std::string_view part) {
  static const Words kWords = {"False",  "None",   "True",    "and",      "as",       "assert", "async",
                               "await",  "break",  "class",   "continue", "def",      "del",    "elif",
                               "else",   "except", "finally", "for",      "from",     "global", "if",
                               "import", "in",     "is",      "lambda",   "nonlocal", "not",    "or",
                               "pass",   "raise",  "return",  "try",      "while",    "with",   "yield"};
  return kWords.contains(part);
}

/// Members of torch.nn.Module in PyTorch 2.13, besides those of every object ("__dict__").
bool is_module_member(std::string_view part) {
  static const Words kWords = {"T_destination",
                               "_apply",
                               "_backward_hooks",
                               "_backward_pre_hooks",
                               "_buffers",
                               "_call_impl",
                               "_compiled_call_impl",
                               "_forward_hooks",
                               "_forward_hooks_always_called",
                               "_forward_hooks_with_kwargs",
                               "_forward_pre_hooks",
                               "_forward_pre_hooks_with_kwargs",
                               "_get_backward_hooks",
                               "_get_backward_pre_hooks",
                               "_get_name",
                               "_is_full_backward_hook",
                               "_load_from_state_dict",
                               "_load_state_dict_post_hooks",
                               "_load_state_dict_pre_hooks",
                               "_maybe_warn_non_full_backward_hook",
                               "_modules",
                               "_named_members",
                               "_non_persistent_buffers_set",
                               "_parameters",
                               "_register_load_state_dict_pre_hook",
                               "_register_state_dict_hook",
                               "_replicate_for_data_parallel",
                               "_save_to_state_dict",
                               "_slow_forward",
                               "_state_dict_hooks",
                               "_state_dict_pre_hooks",
                               "_version",
                               "_wrapped_call_impl",
                               "add_module",
                               "apply",
                               "bfloat16",
                               "buffers",
                               "call_super_init",
                               "children",
                               "compile",
                               "cpu",
                               "cuda",
                               "double",
                               "dump_patches",
                               "eval",
                               "extra_repr",
                               "float",
                               "forward",
                               "get_buffer",
                               "get_extra_state",
                               "get_parameter",
                               "get_submodule",
                               "half",
                               "ipu",
                               "load_state_dict",
                               "modules",
                               "mtia",
                               "named_buffers",
                               "named_children",
                               "named_modules",
                               "named_parameters",
                               "parameters",
                               "register_backward_hook",
                               "register_buffer",
                               "register_forward_hook",
                               "register_forward_pre_hook",
                               "register_full_backward_hook",
                               "register_full_backward_pre_hook",
                               "register_load_state_dict_post_hook",
                               "register_load_state_dict_pre_hook",
                               "register_module",
                               "register_parameter",
                               "register_state_dict_post_hook",
                               "register_state_dict_pre_hook",
                               "requires_grad_",
                               "set_extra_state",
                               "set_submodule",
                               "share_memory",
                               "state_dict",
                               "to",
                               "to_empty",
                               "train",
                               "training",
                               "type",
                               "xpu",
                               "zero_grad"};
  return kWords.contains(part);
}

/// What a module of torch.export has besides.
bool is_graph_module_member(std::string_view part) {
  static const Words kWords = {"_boxed_call",
                               "_code",
                               "_create_node_hooks",
                               "_deepcopy_hooks",
                               "_deepcopy_init",
                               "_erase_node_hooks",
                               "_graph",
                               "_guards_fn",
                               "_in_spec",
                               "_lineno_map",
                               "_out_spec",
                               "_prologue_start",
                               "_recompile_submodules",
                               "_register_create_node_hook",
                               "_register_deepcopy_hook",
                               "_register_erase_node_hook",
                               "_register_replace_node_hook",
                               "_replace_hooks",
                               "_set_replace_hook",
                               "_tracer_cls",
                               "_tracer_extras",
                               "_unregister_create_node_hook",
                               "_unregister_deepcopy_hook",
                               "_unregister_erase_node_hook",
                               "_unregister_replace_node_hook",
                               "_wrapped_call",
                               "add_submodule",
                               "code",
                               "delete_all_unused_submodules",
                               "delete_submodule",
                               "graph",
                               "meta",
                               "print_readable",
                               "range_constraints",
                               "recompile",
                               "shape_env",
                               "to_folder",
                               "validate_inputs"};
  return kWords.contains(part);
}

bool is_plain_character(char c) {
  return c >= 0x20 && c < 0x7f && c != '"' && c != '\\' && c != '@';
}

std::vector<std::string> parts_of(const std::string& name) {
  std::vector<std::string> parts = {""};
  for (const char c : name) {
    if (c == '.') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

/// The name with every part mended, whatever other names there are.
std::vector<std::string> mended_parts(const std::string& name) {
  std::vector<std::string> parts = parts_of(name);
  for (size_t i = 0; i < parts.size(); ++i) {
    std::string& part = parts[i];
    std::ranges::replace_if(
        part, [](char c) { return !is_plain_character(c); }, '_');
    const bool of_object = part.size() > 4 && part.starts_with("__") && part.ends_with("__");
    const bool taken = of_object || is_python_keyword(part) || is_module_member(part) ||
                       (i == 0 && is_graph_module_member(part)) || (parts.size() == 1 && part == "self");
    // "__dict__" becomes "__dict__1", as one more "_" would leave it a name of that form.
    if (of_object) {
      part += "1";
    } else if (taken || part.empty()) {
      part += "_";
    }
  }
  return parts;
}

std::string joined_parts(const std::vector<std::string>& parts, size_t count) {
  std::string name = parts.at(0);
  for (size_t i = 1; i < count; ++i) name += "." + parts[i];
  return name;
}

/// Names of an archive: tensors, and the modules that they lie in.
class AttributeTree {
 public:
  void add(const std::string& name) {
    tensors_.insert(name);
    for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1))
      modules_.insert(name.substr(0, dot));
  }

  bool has_module(const std::string& name) const { return modules_.contains(name); }

  /// Adds the parts' name. A part gets a number where it would be a module at a tensor's name, or the
  /// tensor's own name is taken.
  std::string add_unique(std::vector<std::string> parts) {
    for (size_t count = 1; count <= parts.size(); ++count) {
      const std::string wish = parts[count - 1];
      const auto taken = [&](const std::string& path) {
        return tensors_.contains(path) || (count == parts.size() && modules_.contains(path));
      };
      for (int i = 1; taken(joined_parts(parts, count)); ++i)
        parts[count - 1] = wish + "_" + std::to_string(i);
    }
    std::string name = joined_parts(parts, parts.size());
    add(name);
    return name;
  }

 private:
  std::set<std::string> tensors_, modules_;
};

}  // namespace

bool is_attribute_path(const std::string& name) {
  return mended_parts(name) == parts_of(name);
}

std::map<std::string, std::string> attribute_names(const std::vector<std::string>& names) {
  AttributeTree given, tree;
  for (const std::string& name : names) {
    if (is_attribute_path(name)) given.add(name);
  }
  std::map<std::string, std::string> result;
  std::vector<std::string> others;
  for (const std::string& name : names) {
    if (is_attribute_path(name) && !given.has_module(name)) {
      tree.add(name);
      result[name] = name;
    } else {
      others.push_back(name);
    }
  }
  std::ranges::sort(others);  // numbers do not depend on the order
  for (const std::string& name : others) result[name] = tree.add_unique(mended_parts(name));
  return result;
}

}  // namespace ulp::exchange::pt2
