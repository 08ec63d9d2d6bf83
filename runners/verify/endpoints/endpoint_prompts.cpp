#include <fmt/format.h>

#include "runners/verify/endpoints/endpoint_answers.h"

namespace evalrun::runners {
namespace {

constexpr const char* kToolList =
    "You can call these functions. Answer with one JSON object {\"name\": ..., \"arguments\": "
    "{...}} and nothing else.\n"
    "[{\"name\": \"get_weather\", \"parameters\": {\"city\": \"string\", \"unit\": "
    "\"celsius|fahrenheit\"}},\n"
    " {\"name\": \"book_table\", \"parameters\": {\"restaurant\": \"string\", \"people\": "
    "\"integer\", \"time\": \"string\"}},\n"
    " {\"name\": \"search_files\", \"parameters\": {\"folder\": \"string\", \"pattern\": "
    "\"string\", \"recursive\": \"boolean\"}}]\n\n";

constexpr const char* kToolQuestions[] = {
    "What is the weather in Zurich, in celsius?",
    "Book a table for four at the Blue Door at 19:30.",
    "Find all files that end with .log in /var/tmp, in all folders below it.",
    "Compare the weather of Oslo and Lima, in fahrenheit. Call the function once for each city.",
    "Book a table for two at Nonna at 12:15 and one for six at Harbour House at 20:00.",
    "Which files in notes begin with 2026? Do not look into folders below it.",
};

constexpr const char* kRepetitive[] = {
    "Write the numbers from 1 to 40, one a line, each as \"line N of 40\".",
    "Repeat this sentence ten times, word by word: The green train leaves from platform nine at "
    "noon.",
    "Copy this list and change every 7 to 8: [17, 27, 37, 47, 57, 67, 77, 87, 97, 107, 117, 127, "
    "137, 147, 157]",
    "Rewrite this code with the name total instead of sum, and change nothing else:\n"
    "int sum = 0;\nfor (int i = 0; i < n; ++i) sum += a[i];\nfor (int i = 0; i < n; ++i) sum += "
    "b[i];\nfor (int i = 0; i < n; ++i) sum += c[i];\nreturn sum;",
    "Fill in this table for the days from Monday to Sunday:\n| day | open | close |\n| Monday | "
    "09:00 | 17:00 |\n| Tuesday | 09:00 | 17:00 |",
    "Write a JSON array of twelve objects {\"month\": ..., \"days\": ...}, one for each month of a "
    "year that is no leap year.",
};

}  // namespace

std::vector<MadePrompt> made_endpoint_prompts() {
  std::vector<MadePrompt> prompts;
  int n = 0;
  for (const char* text : kRepetitive)
    prompts.push_back({fmt::format("repetitive/{}", n++), "repetitive", text});
  n = 0;
  for (const char* question : kToolQuestions)
    prompts.push_back(
        {fmt::format("tool-call/{}", n++), "tool call", std::string(kToolList) + question});
  return prompts;
}

}  // namespace evalrun::runners
