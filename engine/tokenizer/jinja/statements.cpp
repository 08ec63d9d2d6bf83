#include <algorithm>

#include "engine/tokenizer/jinja/machine.h"
#include "engine/tokenizer/jinja/operators.h"

namespace evalrun::engine::jinja {

void Scope::set(std::string_view name, Value value) {
  for (auto& [known, old] : names)
    if (known == name) {
      old = std::move(value);
      return;
    }
  names.emplace_back(name, std::move(value));
}

const Value* Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent)
    for (const auto& [known, value] : scope->names)
      if (known == name) return &value;
  return nullptr;
}

void Machine::fail_deep() const {
  throw Fault(
      fmt::format("calls and expressions are nested deeper than {}; does a macro call "
                  "itself?",
                  budget_.limits().depth));
}

std::string Machine::run(const Body& body, const Variables& variables) {
  std::string out;
  out_ = &out;
  Scope given(nullptr);
  for (const auto& [name, value] : variables) given.set(name, value);
  Scope root(&given);
  run_body(body, root);
  return out;
}

void Machine::leave(std::unique_ptr<Scope> scope) {
  if (!scope->captured) return;
  budget_.bytes(sizeof(Scope));
  kept_.push_back(std::move(scope));
}

Machine::Flow Machine::run_body(const Body& body, Scope& scope) {
  const Depth depth(*this);
  for (const Statement& s : body)
    if (const Flow flow = run_statement(s, scope); flow != Flow::kOn) return flow;
  return Flow::kOn;
}

Machine::Flow Machine::run_statement(const Statement& s, Scope& scope) {
  budget_.step();
  line_ = s.line;
  Flow flow = Flow::kOn;
  switch (s.type) {
    case Statement::Type::kData:
      budget_.bytes(s.text.size());
      *out_ += s.text;
      return flow;
    case Statement::Type::kPrint:
      run_print(s, scope);
      return flow;
    case Statement::Type::kIf:
      return run_if(s, scope);
    case Statement::Type::kFor:
      return run_for(s, scope);
    case Statement::Type::kSet:
      assign(*s.target, eval(*s.value, scope), scope);
      return flow;
    case Statement::Type::kSetBlock: {
      const Value text = captured(s.body, *s.value, scope, flow);
      if (flow == Flow::kOn) assign(*s.target, text, scope);
      return flow;
    }
    case Statement::Type::kMacro:
      scope.set(s.code->name, macro(*s.code, scope));
      return flow;
    case Statement::Type::kCall:
      run_call_block(s, scope);
      return flow;
    case Statement::Type::kFilter: {
      const Value text = captured(s.body, *s.value, scope, flow);
      if (flow == Flow::kOn) print(text);
      return flow;
    }
    case Statement::Type::kWith:
      run_with(s, scope, flow);
      return flow;
    case Statement::Type::kScope:
      return run_scope(s, scope);
    case Statement::Type::kBreak:
      return Flow::kBreak;
    case Statement::Type::kContinue:
      return Flow::kContinue;
  }
  return flow;
}

void Machine::run_print(const Statement& s, Scope& scope) {
  for (const ExpressionPtr& e : s.expressions) print(eval(*e, scope));
}

void Machine::print(const Value& value) {
  if (value.is_text()) {
    budget_.bytes(value.text().size());
    *out_ += value.text();
  } else {
    *out_ += str(value, budget_);
  }
}

Machine::Flow Machine::run_if(const Statement& s, Scope& scope) {
  for (const Branch& branch : s.branches)
    if (branch.condition == nullptr || truth(eval(*branch.condition, scope)))
      return run_body(branch.body, scope);
  return Flow::kOn;
}

Machine::Flow Machine::run_scope(const Statement& s, Scope& scope) {
  auto inner = enter(&scope);
  const Flow flow = run_body(s.body, *inner);
  leave(std::move(inner));
  return flow;
}

Values Machine::loop_items(const Statement& s, Scope& scope) {
  const Value all = eval(*s.value, scope);
  line_ = s.line;
  Values items = iterate(all, budget_);
  if (s.condition == nullptr) return items;
  Values kept;
  for (Value& item : items) {
    auto inner = enter(&scope);
    assign(*s.target, item, *inner);
    if (truth(eval(*s.condition, *inner))) kept.push_back(std::move(item));
    leave(std::move(inner));
  }
  return kept;
}

Machine::Flow Machine::run_for(const Statement& s, Scope& scope) {
  auto loop = std::make_shared<Loop>();
  loop->items = loop_items(s, scope);
  for (const Value& item : loop->items)
    loop->depth = std::max(loop->depth, 1 + Budget::nested(item));
  if (loop->items.empty()) {
    auto inner = enter(&scope);
    const Flow flow = run_body(s.otherwise, *inner);
    leave(std::move(inner));
    return flow;
  }
  Flow flow = Flow::kOn;
  for (; loop->index < loop->items.size() && flow != Flow::kBreak; ++loop->index) {
    budget_.step();
    auto inner = enter(&scope);
    inner->set("loop", Value(Kind::kLoop, loop));
    assign(*s.target, loop->items[loop->index], *inner);
    flow = run_body(s.body, *inner);
    leave(std::move(inner));
  }
  return Flow::kOn;
}

void Machine::run_with(const Statement& s, Scope& scope, Flow& flow) {
  auto inner = enter(&scope);
  // The values are those of the names outside.
  Values values;
  for (const ExpressionPtr& e : s.expressions) values.push_back(eval(*e, scope));
  for (size_t i = 0; i < values.size(); ++i) assign(*s.targets[i], values[i], *inner);
  flow = run_body(s.body, *inner);
  leave(std::move(inner));
}

// The text that `body` prints, through the filters of a block.
Value Machine::captured(const Body& body, const Expression& through, Scope& scope, Flow& flow) {
  std::string text;
  std::string* const outside = std::exchange(out_, &text);
  auto inner = enter(&scope);
  flow = run_body(body, *inner);
  leave(std::move(inner));
  out_ = outside;
  if (flow != Flow::kOn) return {};
  captured_ = budget_.text(std::move(text));
  return eval(through, scope);
}

void Machine::assign(const Expression& target, const Value& value, Scope& scope) {
  budget_.step();
  if (target.type == Expression::Type::kName) {
    scope.set(target.name, value);
    return;
  }
  if (target.type == Expression::Type::kNamespaceTarget) {
    const Value* space = scope.find(target.name);
    if (space == nullptr || !space->is(Kind::kNamespace))
      throw Fault(fmt::format("'{}' is no namespace; only a namespace's attributes can be set",
                              target.name),
                  target.line);
    Budget::nested(value);
    auto& entries = static_cast<Namespace*>(space->object())->entries;
    const std::string& name = target.value.text();
    const auto known = std::find_if(entries.begin(), entries.end(),
                                    [&](const auto& entry) { return entry.first == name; });
    if (known != entries.end())
      known->second = value;
    else
      entries.emplace_back(name, value);
    return;
  }
  require_defined(value);
  const Values items = iterate(value, budget_);
  if (items.size() != target.operands.size())
    throw Fault(fmt::format("{} names for {} values", target.operands.size(), items.size()),
                target.line);
  for (size_t i = 0; i < items.size(); ++i) assign(*target.operands[i], items[i], scope);
}

Value Machine::macro(const MacroCode& code, Scope& scope) {
  for (Scope* around = &scope; around != nullptr; around = around->parent) around->captured = true;
  auto made = std::make_shared<Macro>();
  made->code = &code;
  made->scope = &scope;
  return {Kind::kMacro, std::move(made)};
}

void Machine::run_call_block(const Statement& s, Scope& scope) {
  const Value caller = macro(*s.code, scope);
  print(eval_call(*s.value, scope, &caller));
}

Value Machine::call_macro(const Macro& macro, const Arguments& arguments) {
  const Depth depth(*this);
  const MacroCode& code = *macro.code;
  auto scope = enter(macro.scope);
  const auto& named = arguments.named;
  std::vector<bool> used(named.size(), false);
  const size_t n = code.parameters.size();
  for (size_t i = 0; i < n; ++i) {
    const MacroCode::Parameter& parameter = code.parameters[i];
    if (i < arguments.positional.size()) {
      scope->set(parameter.name, arguments.positional[i]);
      continue;
    }
    const auto given = std::find_if(named.begin(), named.end(), [&](const auto& argument) {
      return argument.first == parameter.name;
    });
    if (given != named.end()) {
      used[static_cast<size_t>(given - named.begin())] = true;
      scope->set(parameter.name, given->second);
    } else if (parameter.usual != nullptr) {
      scope->set(parameter.name, eval(*parameter.usual, *scope));
    } else {
      scope->set(parameter.name,
                 Value::undefined(fmt::format("parameter '{}' was not provided", parameter.name)));
    }
  }
  if (code.uses_caller &&
      scope->names.end() == std::find_if(scope->names.begin(), scope->names.end(),
                                         [](const auto& entry) { return entry.first == "caller"; }))
    scope->set("caller", Value::undefined("no caller is defined"));
  Entries rest;
  for (size_t i = 0; i < named.size(); ++i) {
    if (used[i]) continue;
    if (named[i].first == "caller" && code.uses_caller)
      scope->set("caller", named[i].second);
    else if (code.uses_kwargs)
      rest.emplace_back(budget_.text(named[i].first), named[i].second);
    else
      throw Fault(fmt::format("macro '{}' takes no argument '{}'", code.name, named[i].first));
  }
  if (code.uses_kwargs) scope->set("kwargs", make_dict(std::move(rest), budget_));
  if (arguments.positional.size() > n && !code.uses_varargs)
    throw Fault(fmt::format("macro '{}' takes at most {} arguments", code.name, n));
  if (code.uses_varargs) {
    const auto& all = arguments.positional;
    scope->set("varargs",
               budget_.tuple(all.size() > n
                                 ? Values(all.begin() + static_cast<std::ptrdiff_t>(n), all.end())
                                 : Values()));
  }
  std::string text;
  std::string* const outside = std::exchange(out_, &text);
  run_body(code.body, *scope);
  leave(std::move(scope));
  out_ = outside;
  return budget_.text(std::move(text));
}

}  // namespace evalrun::engine::jinja
