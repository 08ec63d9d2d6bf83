#include "engine/tokenizer/jinja/values/value.h"

namespace evalrun::engine::jinja {

Value Value::undefined(std::string why) {
  return {Kind::kUndefined, std::make_shared<Text>(std::move(why))};
}

Value Value::boolean(bool b) {
  Value v(Kind::kBool);
  v.whole_ = b ? 1 : 0;
  return v;
}

Value Value::integer(int64_t i) {
  Value v(Kind::kInt);
  v.whole_ = i;
  return v;
}

Value Value::number(double d) {
  Value v(Kind::kFloat);
  v.real_ = d;
  return v;
}

const std::string& Value::text() const { return static_cast<const Text*>(object_.get())->value; }

const Values& Value::items() const { return static_cast<const Sequence*>(object_.get())->items; }

const Entries& Value::entries() const { return static_cast<const Dict*>(object_.get())->entries; }

const std::string& Value::why_undefined() const {
  static const std::string kPlain = "a value is undefined";
  return object_ == nullptr ? kPlain : static_cast<const Text*>(object_.get())->value;
}

int Value::depth() const {
  switch (kind_) {
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
    case Kind::kGenerator:
      return static_cast<const Sequence*>(object_.get())->depth;
    case Kind::kDict:
      return static_cast<const Dict*>(object_.get())->depth;
    case Kind::kLoop:
      return static_cast<const Loop*>(object_.get())->depth;
    case Kind::kMethod:
      return 1 + static_cast<const Method*>(object_.get())->self.depth();
    default:
      return 0;
  }
}

bool truth(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.whole() != 0;
    case Kind::kFloat:
      return value.real() != 0;
    case Kind::kText:
      return !value.text().empty();
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
      return !value.items().empty();
    case Kind::kDict:
      return !value.entries().empty();
    default:
      return true;
  }
}

const char* type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kText:
      return "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kView:
      return "dict view";
    case Kind::kGenerator:
      return "generator";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kMacro:
      return "Macro";
    case Kind::kMethod:
    case Kind::kFunction:
      return "function";
  }
  return "object";
}

void require_defined(const Value& value) {
  if (value.is_undefined()) throw Fault(value.why_undefined());
}

}  // namespace evalrun::engine::jinja
