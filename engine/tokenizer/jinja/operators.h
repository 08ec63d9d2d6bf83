// Python's operators, str() and repr().
#pragma once
#include <string>
#include <string_view>

#include "engine/tokenizer/jinja/values/budget.h"
#include "engine/tokenizer/jinja/values/value.h"

namespace evalrun::engine::jinja {

enum class Operator { kAdd, kSub, kMul, kDiv, kFloorDiv, kMod, kPow };

bool equal(const Value& a, const Value& b, Budget& budget);
// Negative, zero or positive; Fault for kinds that have no order.
int compare(const Value& a, const Value& b, Budget& budget);
bool contains(const Value& container, const Value& item, Budget& budget);
void require_hashable(const Value& key);
// The value for a key, nullptr when there is none.
const Value* find_entry(const Value& dict, const Value& key, Budget& budget);

Value calculate(Operator op, const Value& a, const Value& b, Budget& budget);
Value negated(const Value& value);

// Every item a loop over `value` meets. Fault when it cannot be looped over.
Values iterate(const Value& value, Budget& budget);
int64_t length(const Value& value, Budget& budget);

// value[begin:end:step], each a whole number or None.
Value slice(const Value& value, const Value& begin, const Value& end, const Value& step,
            Budget& budget);

std::string number_text(double number);  // repr() of a float
std::string str(const Value& value, Budget& budget);
std::string repr(const Value& value, Budget& budget);

}  // namespace evalrun::engine::jinja
