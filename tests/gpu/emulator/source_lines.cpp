// Where in the source a place of the program's code is.
#include <dlfcn.h>

#include <cstdio>

#include "tests/gpu/emulator/accesses.h"

// Begin of the program's own code, by the linker.
extern "C" const char __executable_start;

namespace emulator::accesses {

uint32_t code_of(const void* pc) {
  return static_cast<uint32_t>(static_cast<const char*>(pc) - &__executable_start);
}

std::string source_line(uint32_t code) {
  const void* pc = &__executable_start + code;
  Dl_info info{};
  if (dladdr(pc, &info) == 0 || info.dli_fname == nullptr) return "unknown code";
  const auto offset = static_cast<unsigned long>(static_cast<const char*>(pc) -
                                                 static_cast<const char*>(info.dli_fbase));
  char address[32];
  std::snprintf(address, sizeof address, "0x%lx", offset - 1);  // the call, not what follows
  std::string text = std::string(info.dli_fname) + "+" + address;
  const std::string command =
      "addr2line -e '" + std::string(info.dli_fname) + "' -Cfpi " + address + " 2>/dev/null";
  std::FILE* out = popen(command.c_str(), "r");
  if (out == nullptr) return text;
  std::string lines;
  char part[256];
  while (std::fgets(part, sizeof part, out) != nullptr) lines += part;
  pclose(out);
  while (!lines.empty() && lines.back() == '\n') lines.pop_back();
  return lines.empty() ? text : lines;
}

std::string kernel_name(const void* kernel) { return source_line(code_of(kernel) + 1); }

}  // namespace emulator::accesses
