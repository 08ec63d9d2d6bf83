#include "engine/tokenizer/jinja/values/budget.h"

#include <algorithm>

namespace evalrun::engine::jinja {

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

Value Budget::method(Value self, std::string name) {
  nested(self);
  bytes(kObjectBytes);
  auto made = std::make_shared<Method>();
  made->self = std::move(self);
  made->name = std::move(name);
  return {Kind::kMethod, std::move(made)};
}

}  // namespace evalrun::engine::jinja
