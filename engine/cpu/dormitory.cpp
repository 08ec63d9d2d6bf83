#include "engine/cpu/dormitory.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

namespace evalrun::engine::cpu {
namespace {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t), "a futex is a plain word");
void futex(std::atomic<uint32_t>& word, int operation, uint32_t value) {
  // Returns early for many reasons (EAGAIN, EINTR); every caller looks again at what it waits for.
  syscall(SYS_futex, &word, operation, value, nullptr, nullptr, 0);
}

}  // namespace

void Dormitory::sleep(uint32_t bell) { futex(bell_, FUTEX_WAIT_PRIVATE, bell); }

void Dormitory::ring() {
  bell_.fetch_add(1);
  futex(bell_, FUTEX_WAKE_PRIVATE, INT_MAX);
}

}  // namespace evalrun::engine::cpu
