// Runs the tree of a template.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/tokenizer/jinja/arguments.h"
#include "engine/tokenizer/jinja/dicts.h"
#include "engine/tokenizer/jinja/syntax/ast.h"
#include "engine/tokenizer/jinja/values/budget.h"
#include "engine/tokenizer/jinja/variables.h"

namespace evalrun::engine::jinja {

// Names by scope: the template, a loop's turn, a macro's call. Names are the tree's, which lives
// longer.
struct Scope {
  explicit Scope(Scope* around) : parent(around) {}
  void set(std::string_view name, Value value);
  const Value* find(std::string_view name) const;  // here and around

  Scope* parent;
  std::vector<std::pair<std::string_view, Value>> names;
  bool captured = false;  // a macro looks into it
};

struct Macro final : Object {
  const MacroCode* code = nullptr;
  Scope* scope = nullptr;  // around its definition
};

class Machine {
 public:
  Machine(const Date& date, Budget& budget) : date_(date), budget_(budget) {}

  std::string run(const Body& body, const Variables& variables);
  int line() const { return line_; }  // where it was when it failed

  Value filter(const std::string& name, const Value& value, const Arguments& arguments);
  bool test(const std::string& name, const Value& value, const Arguments& arguments);
  Value call(const Value& callee, const Arguments& arguments);
  Value attribute(const Value& of, const std::string& name);
  Value item(const Value& of, const Value& key);
  Value item_by_path(const Value& of, std::string_view path);  // "function.name", "0.text"
  Budget& budget() { return budget_; }

 private:
  enum class Flow { kOn, kBreak, kContinue };
  struct Depth {
    explicit Depth(Machine& owner) : machine(owner) {
      if (++machine.depth_ > machine.budget_.limits().depth) machine.fail_deep();
    }
    ~Depth() { --machine.depth_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;
    Machine& machine;
  };
  [[noreturn]] void fail_deep() const;

  // Statements (statements.cpp).
  std::unique_ptr<Scope> enter(Scope* parent) const { return std::make_unique<Scope>(parent); }
  void leave(std::unique_ptr<Scope> scope);
  Flow run_body(const Body& body, Scope& scope);
  Flow run_statement(const Statement& s, Scope& scope);
  Flow run_if(const Statement& s, Scope& scope);
  Flow run_for(const Statement& s, Scope& scope);
  Flow run_scope(const Statement& s, Scope& scope);
  Values loop_items(const Statement& s, Scope& scope);
  void run_print(const Statement& s, Scope& scope);
  void run_with(const Statement& s, Scope& scope, Flow& flow);
  void run_call_block(const Statement& s, Scope& scope);
  Value captured(const Body& body, const Expression& through, Scope& scope, Flow& flow);
  void assign(const Expression& target, const Value& value, Scope& scope);
  void print(const Value& value);
  Value macro(const MacroCode& code, Scope& scope);
  Value call_macro(const Macro& macro, const Arguments& arguments);

  // Expressions (expressions.cpp).
  Value eval(const Expression& e, Scope& scope);
  Value eval_name(const Expression& e, Scope& scope);
  Value eval_container(const Expression& e, Scope& scope);
  Value eval_call(const Expression& e, Scope& scope, const Value* caller = nullptr);
  Value eval_filter_or_test(const Expression& e, Scope& scope);
  Value eval_arithmetic(const Expression& e, Scope& scope);
  bool eval_compare(const Expression& e, Scope& scope);
  Value eval_concat(const Expression& e, Scope& scope);
  Value eval_slice(const Expression& e, Scope& scope);
  Arguments eval_arguments(const Expression& e, Scope& scope);

  // Methods (methods.cpp) and functions (functions.cpp).
  std::optional<Value> method_of(const Value& self, const std::string& name);
  Value call_method(const Method& method, const Arguments& arguments);
  Value call_text_method(const std::string& self, const std::string& name,
                         const Arguments& arguments);
  Value call_function(const std::string& name, const Arguments& arguments);
  Value loop_attribute(const Value& of, const std::string& name);

  // Filters (filters.cpp, filters_of_lists.cpp): nothing when the name is another's.
  bool filter_of_value(const std::string& name, const Value& value, const Arguments& arguments,
                       Value& result);
  bool filter_of_list(const std::string& name, const Value& value, const Arguments& arguments,
                      Value& result);
  Value select(const std::string& name, const Value& value, const Arguments& arguments);
  Value map(const Value& value, const Arguments& arguments);
  Value sorted(const Value& value, const Arguments& arguments);
  Value dict_sorted(const Value& value, const Arguments& arguments);
  Value joined(const Value& value, const Arguments& arguments);
  Value extreme(const std::string& name, const Value& value, const Arguments& arguments);
  Value unique(const Value& value, const Arguments& arguments);
  Value batched(const std::string& name, const Value& value, const Arguments& arguments);
  Value folded(const Value& value, bool case_sensitive);  // to compare by
  void sort_by(Values& items, Values keys, bool reverse);

  const Date date_;
  Budget& budget_;
  int line_ = 0, depth_ = 0;
  std::string* out_ = nullptr;
  Value captured_;
  std::vector<std::unique_ptr<Scope>> kept_;  // scopes that macros look into
};

bool is_function_name(std::string_view name);
bool is_filter_name(const std::string& name);
bool is_test_name(const std::string& name);

}  // namespace evalrun::engine::jinja
