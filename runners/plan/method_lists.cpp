#include "runners/plan/method_lists.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "methods/registration.h"

namespace evalrun::runners {
namespace {

MethodList fast_methods() {
  return {"fast",
          "the look-ups that pay",
          {"pld:adaptive=true,candidates=3,match=frequent",
           "lookahead:adaptive=true,pool_from_prompt=true", "self_draft:adaptive=true"},
          {}};
}

MethodList all_methods() {
  MethodList all{"all", "every method at its defaults, if what it needs is installed", {}, {}};
  for (const auto& [name, info] : methods::method_registry().entries())
    if (name != "ar" && name != "ar_tuned" && name != "pad" && !info.needs_answer)
      (info.needs.starts_with("nothing") ? all.methods : all.optional).push_back(name);
  return all;
}

// One spelling for every way to write a method; what is none stays for a later check to refuse.
std::string spelling(const std::string& method) {
  try {
    return methods::parse_method(method).canonical();
  } catch (const base::Error&) {
    return method;
  }
}

}  // namespace

const std::vector<MethodList>& method_lists() {
  static const std::vector<MethodList> lists = {fast_methods(), all_methods()};
  return lists;
}

const MethodList* find_method_list(std::string_view name) {
  for (const MethodList& list : method_lists())
    if (list.name == base::trim(name)) return &list;
  return nullptr;
}

std::string describe_method_lists() {
  std::vector<std::string> texts;
  for (const MethodList& list : method_lists())
    texts.push_back(fmt::format("{} ({})", list.name, list.summary));
  return fmt::format("{}", fmt::join(texts, ", "));
}

void expand_method_lists(std::vector<std::string>& methods, std::vector<std::string>& optional) {
  std::set<std::string> named;
  bool lists = false;
  for (const std::vector<std::string>* given : {&methods, &optional})
    for (const std::string& method : *given) {
      lists = lists || find_method_list(method) != nullptr;
      named.insert(spelling(method));
    }
  if (!lists) return;
  std::vector<std::string> all;
  const auto add = [&](const std::vector<std::string>& from, std::vector<std::string>& to) {
    for (const std::string& method : from)
      if (named.insert(spelling(method)).second) to.push_back(method);
  };
  for (const std::string& method : methods) {
    const MethodList* list = find_method_list(method);
    if (list == nullptr) {
      all.push_back(method);
      continue;
    }
    add(list->methods, all);
    add(list->optional, optional);
  }
  methods = std::move(all);
}

std::vector<std::string> expanded_method_lists(std::vector<std::string> methods) {
  for (const std::string& method : methods)
    if (const MethodList* list = find_method_list(method);
        list != nullptr && !list->optional.empty())
      throw base::usage_error(
          fmt::format("the list '{}' holds methods that need a draft model or a file", list->name),
          fmt::format("name the methods, e.g. {}", fmt::join(list->methods, ",")));
  std::vector<std::string> none;
  expand_method_lists(methods, none);
  return methods;
}

}  // namespace evalrun::runners
