// A profiler for the tests of engine/trace.h: NVTX loads it and hands it every span.
#include <nvtx3/nvToolsExt.h>

#include <string>

namespace {
std::string log;
int push(const char* name) {
  log += std::string("(") + name + " ";
  return 0;
}
int pop() {
  log += ") ";
  return 0;
}
}  // namespace

extern "C" {
const char* fake_nvtx_log() { return log.c_str(); }

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks == nullptr ||
      callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size) == 0)
    return 0;
  *table[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(push);
  *table[NVTX_CBID_CORE_RangePop] = reinterpret_cast<NvtxFunctionPointer>(pop);
  return 1;
}
}
