// Stands in for libcuda.so.1 (tests/gpu/bare): a driver that sees no GPU, or with STUB_DRIVER=old
// one that runs CUDA up to 11.4 alone. The runtime asks for every function by cuGetProcAddress;
// none but these is ever called.
#include <stdlib.h>
#include <string.h>

enum { kSuccess = 0, kNoDevice = 100 };

int cuInit(unsigned flags) {
  (void)flags;
  return kNoDevice;
}
int cuDriverGetVersion(int* version) {
  const char* which = getenv("STUB_DRIVER");
  *version = which != NULL && strcmp(which, "old") == 0 ? 11040 : 13000;
  return kSuccess;
}
static int any(void) { return kNoDevice; }

int cuGetProcAddress_v2(const char* name, void** function, int version, unsigned long long flags,
                        int* found) {
  (void)version, (void)flags;
  if (strcmp(name, "cuInit") == 0)
    *function = (void*)cuInit;
  else if (strcmp(name, "cuDriverGetVersion") == 0)
    *function = (void*)cuDriverGetVersion;
  else if (strcmp(name, "cuGetProcAddress") == 0)
    *function = (void*)cuGetProcAddress_v2;
  else
    *function = (void*)any;
  if (found != NULL) *found = 0;
  return kSuccess;
}
int cuGetProcAddress(const char* name, void** function, int version, unsigned long long flags) {
  return cuGetProcAddress_v2(name, function, version, flags, NULL);
}
