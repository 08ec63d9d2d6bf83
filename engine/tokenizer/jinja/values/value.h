// Values of a template, as Python has them. Nothing changes after it was made, a namespace and a
// generator that was read to its end excepted.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/tokenizer/jinja/values/fault.h"

namespace evalrun::engine::jinja {

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kText,
  kList,
  kTuple,
  kDict,
  kView,       // dict.keys(), values(), items()
  kGenerator,  // what select, map, ... give: it can be read once, and is always true
  kNamespace,
  kLoop,
  kMacro,
  kMethod,    // "text".strip without its call
  kFunction,  // range, namespace, raise_exception, ...
};

struct Object {
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;
};

class Value;
using Values = std::vector<Value>;
using Entries = std::vector<std::pair<Value, Value>>;

// Budget makes texts and containers: it counts their bytes.
class Value {
 public:
  Value() = default;  // undefined
  static Value undefined(std::string why);
  static Value none() { return Value(Kind::kNone); }
  static Value boolean(bool b);
  static Value integer(int64_t i);
  static Value number(double d);
  Value(Kind kind, std::shared_ptr<Object> object) : kind_(kind), object_(std::move(object)) {}

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_text() const { return kind_ == Kind::kText; }
  bool is_dict() const { return kind_ == Kind::kDict; }
  bool is_whole() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }  // Python's int
  bool is_numeric() const { return is_whole() || kind_ == Kind::kFloat; }
  bool is_sequence() const { return kind_ == Kind::kList || kind_ == Kind::kTuple; }

  int64_t whole() const { return whole_; }  // of is_whole()
  double real() const { return kind_ == Kind::kFloat ? real_ : static_cast<double>(whole_); }
  const std::string& text() const;
  const Values& items() const;  // of lists, tuples, views and generators
  const Entries& entries() const;
  const std::string& why_undefined() const;
  Object* object() const { return object_.get(); }
  int depth() const;  // containers around the innermost value

 private:
  explicit Value(Kind kind) : kind_(kind) {}

  Kind kind_ = Kind::kUndefined;
  union {
    int64_t whole_ = 0;
    double real_;
  };
  std::shared_ptr<Object> object_;
};

struct Text final : Object {
  explicit Text(std::string t) : value(std::move(t)) {}
  std::string value;
};
struct Sequence final : Object {
  Values items;
  std::string name;       // of a view: "dict_keys"
  bool consumed = false;  // of a generator
  int depth = 1;
};
struct Dict final : Object {
  Entries entries;  // in the order of insertion
  int depth = 1;
};
struct Namespace final : Object {
  std::vector<std::pair<std::string, Value>> entries;
};
// What `loop` is inside of a loop.
struct Loop final : Object {
  Values items;
  size_t index = 0;
  Values changed;
  bool asked_changed = false;
  int depth = 1;
};
struct Method final : Object {
  Value self;
  std::string name;
};
struct Function final : Object {
  std::string name;
};

bool truth(const Value& value);
const char* type_name(const Value& value);  // as Python names it: "str", "dict", "NoneType"
// Throws Fault where Python raises for an undefined value.
void require_defined(const Value& value);

}  // namespace evalrun::engine::jinja
