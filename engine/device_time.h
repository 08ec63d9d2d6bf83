// How long a device was busy with each phase of a generation: events around what a session queues,
// read when somebody waits for it anyway (SessionOptions::time_device). Wall time of a phase less
// this is the host's part of it.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

namespace evalrun::engine {

// kPrefill: of the target; kDraftPrefill: of what drafts, and all else before the first step.
enum class DevicePhase { kPrefill, kDraftPrefill, kDraft, kVerify, kCommit, kOther };
inline constexpr size_t kDevicePhases = 6;

struct DeviceTime {
  std::array<int64_t, kDevicePhases> ns = {};
  // Forwards that found no graph of theirs and were launched kernel by kernel; also without
  // time_device.
  int64_t graph_misses = 0;
  int64_t& operator[](DevicePhase p) { return ns[static_cast<size_t>(p)]; }
  int64_t operator[](DevicePhase p) const { return ns[static_cast<size_t>(p)]; }
};

// What this thread's sessions queue from now on belongs to this phase: one for all of them, because
// a drafter may have a session of its own.
inline DevicePhase& device_phase() {
  thread_local DevicePhase phase = DevicePhase::kOther;
  return phase;
}

// Since this thread began. What is queued and not waited for, a commit, is added when the next
// forward is.
inline DeviceTime& device_time() {
  thread_local DeviceTime time;
  return time;
}

}  // namespace evalrun::engine
