#include "engine/tokenizer/jinja/budget.h"

#include <algorithm>

#include "engine/tokenizer/jinja/operators.h"

namespace evalrun::engine::jinja {

namespace {

constexpr size_t kObjectBytes = 64;  // of an object and its counts, beside what it holds

}  // namespace

void Budget::fail_steps() const {
  throw Fault(fmt::format("takes more than {} steps; does it loop for ever?", limits_.steps));
}

void Budget::fail_bytes() const {
  throw Fault(fmt::format("builds more than {} MiB of text and lists", limits_.bytes >> 20));
}

void Budget::repeated(size_t size, size_t times) {
  size_t total = 0;
  if (__builtin_mul_overflow(size, times, &total)) fail_bytes();
  bytes(total);
}

Value Budget::text(std::string text) {
  bytes(kObjectBytes + text.size());
  return {Kind::kText, std::make_shared<Text>(std::move(text))};
}

// A namespace can be changed later, so that one inside of itself would be a ring.
int Budget::nested(const Value& value) {
  if (value.is(Kind::kNamespace)) throw Fault("a namespace cannot be put into another value");
  if (value.depth() >= kMaxValueDepth)
    throw Fault(fmt::format("lists in lists go deeper than {}", kMaxValueDepth));
  return value.depth();
}

Value Budget::sequence(Kind kind, Values items) {
  bytes(kObjectBytes);
  repeated(sizeof(Value), items.size());
  auto made = std::make_shared<Sequence>();
  for (const Value& item : items) made->depth = std::max(made->depth, 1 + nested(item));
  made->items = std::move(items);
  return {kind, std::move(made)};
}

Value Budget::view(const char* name, Values items) {
  Value made = sequence(Kind::kView, std::move(items));
  static_cast<Sequence*>(made.object())->name = name;
  return made;
}

Value Budget::dict(Entries entries) {
  bytes(kObjectBytes);
  repeated(2 * sizeof(Value), entries.size());
  auto made = std::make_shared<Dict>();
  for (auto& entry : entries) {
    require_hashable(entry.first);
    made->depth = std::max({made->depth, 1 + nested(entry.first), 1 + nested(entry.second)});
    const auto same = std::find_if(made->entries.begin(), made->entries.end(), [&](const auto& e) {
      return equal(e.first, entry.first, *this);
    });
    if (same == made->entries.end())
      made->entries.push_back(std::move(entry));
    else
      same->second = std::move(entry.second);
  }
  return {Kind::kDict, std::move(made)};
}

Value Budget::name_space(Entries entries) {
  const Value unique = dict(std::move(entries));
  auto made = std::make_shared<Namespace>();
  for (const auto& [key, value] : unique.entries())
    if (key.is_text()) made->entries.emplace_back(key.text(), value);
  return {Kind::kNamespace, std::move(made)};
}

Value Budget::method(Value self, std::string name) {
  nested(self);
  bytes(kObjectBytes);
  auto made = std::make_shared<Method>();
  made->self = std::move(self);
  made->name = std::move(name);
  return {Kind::kMethod, std::move(made)};
}

}  // namespace evalrun::engine::jinja
