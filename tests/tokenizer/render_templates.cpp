// Renders Jinja templates for scripts/check-chat-templates and the makers of fixtures. Each line of
// input is a JSON object: "template", "variables" (an object of JSON values). Each line of output
// is {"text": ...}, or {"error": ..., "line": ...} when the template refuses.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/tokenizer/jinja_values.h"

int main() {
  using nlohmann::ordered_json;
  for (std::string line; std::getline(std::cin, line);) {
    const ordered_json task = ordered_json::parse(line);
    std::cout << evalrun::engine::jinja::render_json(task).dump() << "\n" << std::flush;
  }
}
