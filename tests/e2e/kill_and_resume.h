// kill -9 at random moments of a running suite: the database opens, nothing that was committed is
// lost, and the resumed run gives the tokens and counts of an undisturbed one.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

namespace evalrun::tests {

struct KilledSuite {
  std::vector<std::string> arguments;  // of evalrun, with "--db r.db" and prompts.jsonl
  size_t cells;                        // generations of the whole run
  int kills;
  int prompts = 120;  // of prompts.jsonl
};
// Fails the test that calls it.
void kill_and_resume(const KilledSuite& suite);

}  // namespace evalrun::tests
