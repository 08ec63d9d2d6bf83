#include "engine/tokenizer/jinja/jinja.h"

#include "engine/tokenizer/jinja/machine.h"
#include "engine/tokenizer/jinja/syntax/parser.h"

namespace evalrun::engine::jinja {

struct Template::Code {
  Body body;
};

Template::Template(std::string_view source)
    : code_(std::make_unique<const Code>(Code{parse(source)})) {}
Template::~Template() = default;
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;

std::string Template::render(const Variables& variables, const Date& date, Budget& budget) const {
  Machine machine(date, budget);
  try {
    return machine.run(code_->body, variables);
  } catch (const Fault& fault) {  // what fails inside of a value knows no line
    throw Fault(fault.what(), fault.line() > 0 ? fault.line() : machine.line());
  }
}

}  // namespace evalrun::engine::jinja
