#include "engine/tokenizer/jinja/arguments.h"

#include <algorithm>

namespace evalrun::engine::jinja {

Bound::Bound(std::string who, const Arguments& arguments, std::initializer_list<const char*> names,
             size_t required)
    : who_(std::move(who)), names_(names), values_(names_.size(), nullptr) {
  if (arguments.positional.size() > names_.size())
    throw Fault(fmt::format("{} takes at most {} arguments, not {}", who_, names_.size(),
                            arguments.positional.size()));
  for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& argument : arguments.named) {
    const std::string& name = argument.first;
    const auto at =
        std::find_if(names_.begin(), names_.end(), [&](const char* n) { return name == n; });
    if (at == names_.end()) throw Fault(fmt::format("{} has no argument '{}'", who_, name));
    const Value*& place = values_[static_cast<size_t>(at - names_.begin())];
    if (place != nullptr) throw Fault(fmt::format("{} got argument '{}' twice", who_, name));
    place = &argument.second;
  }
  for (size_t i = 0; i < required; ++i)
    if (values_[i] == nullptr)
      throw Fault(fmt::format("{} needs the argument '{}'", who_, names_[i]));
}

int64_t Bound::whole_or(size_t i, int64_t usual) const {
  if (!has(i)) return usual;
  require_defined(at(i));
  if (!at(i).is_whole())
    throw Fault(fmt::format("{}: argument '{}' must be a whole number, not {}", who_, names_[i],
                            type_name(at(i))));
  return at(i).whole();
}

std::string_view Bound::text_or(size_t i, std::string_view usual) const {
  if (!has(i) || at(i).is_none()) return usual;
  require_defined(at(i));
  if (!at(i).is_text())
    throw Fault(
        fmt::format("{}: argument '{}' must be a text, not {}", who_, names_[i], type_name(at(i))));
  return at(i).text();
}

}  // namespace evalrun::engine::jinja
