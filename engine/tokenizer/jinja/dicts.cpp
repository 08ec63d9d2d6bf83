#include "engine/tokenizer/jinja/dicts.h"

#include <algorithm>

#include "engine/tokenizer/jinja/operators.h"

namespace evalrun::engine::jinja {

Value make_dict(Entries entries, Budget& budget) {
  budget.bytes(kObjectBytes);
  budget.repeated(2 * sizeof(Value), entries.size());
  auto made = std::make_shared<Dict>();
  for (auto& entry : entries) {
    require_hashable(entry.first);
    made->depth =
        std::max({made->depth, 1 + Budget::nested(entry.first), 1 + Budget::nested(entry.second)});
    const auto same = std::find_if(made->entries.begin(), made->entries.end(), [&](const auto& e) {
      return equal(e.first, entry.first, budget);
    });
    if (same == made->entries.end())
      made->entries.push_back(std::move(entry));
    else
      same->second = std::move(entry.second);
  }
  return {Kind::kDict, std::move(made)};
}

Value make_namespace(Entries entries, Budget& budget) {
  const Value unique = make_dict(std::move(entries), budget);
  auto made = std::make_shared<Namespace>();
  for (const auto& [key, value] : unique.entries())
    if (key.is_text()) made->entries.emplace_back(key.text(), value);
  return {Kind::kNamespace, std::move(made)};
}

}  // namespace evalrun::engine::jinja
