// What the emulator's own files share of its runtime: faults and launches (emulator.cpp), memory
// (memory.cpp), streams, events and graphs (streams.cpp), captures (captures.cpp).
//
// What is freed or destroyed while queued work may use it ends the process, with the names of both.
// CUDA's manual (runtime API 13.0) promises:
//   cudaFree            "may perform implicit synchronization": nothing. In practice it waits for
//                       the device, which is a wait nobody wrote down.
//   cudaFreeHost        nothing at all.
//   cudaFreeAsync       stream order: what the stream was given before may use the memory, no
//                       other stream's work, and nothing that is queued later.
//   cudaStreamDestroy   returns at once; what is queued runs on. But nobody can wait for it any
//                       more, so no memory it uses can ever be freed by right.
//   cudaEventDestroy    returns at once, as well. What the event was recorded for is lost.
//   cudaGraphExecDestroy  nothing. The driver's manual frees it once it has run
//   (cuGraphExecDestroy).
// None of this is relied on here: whoever destroys has waited before.
//
// "May use": a copy, a product by cuBLAS and so on says what it reads and writes. Of a kernel, any
// word of its arguments that is an address within an allocation, structures included. What a kernel
// finds by an address that lies in device memory is not seen; the engine's kernels find nothing so.
// A device that failed for good (a sticky fault) runs nothing more, so nothing there is in use.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/gpu/emulator/accesses.h"

namespace emulator {

using accesses::Range;

struct Capture;
// How many steps of each stream of a capture, by its number, come before the next of this one.
using Steps = std::map<int, int>;

// An event as one cudaEventRecord left it. What is queued may outlive the event.
struct Record {
  int stream = 0;  // its number
  bool done = false;
  double ms = 0;
  // Of a stream that was captured, and then it is never done.
  std::shared_ptr<Capture> capture = nullptr;
  Steps seen = {};
};
struct Event {
  int number = 0;
  std::shared_ptr<Record> last = nullptr;
};

// Something on a stream, or in a graph.
struct Work {
  std::function<void()> run;
  std::string what;              // "a copy"; of a kernel: nothing
  const void* kernel = nullptr;  // its function
  std::vector<Range> uses = {};
  std::shared_ptr<Record> record = nullptr;  // that it fills
  const Event* event = nullptr;              // that it is a record of
  const GraphExec* graph = nullptr;          // whose launch it is a part of
};

struct Stream {
  int number = 0;
  bool blocking = false;  // made without cudaStreamNonBlocking
  std::deque<Work> queue = {};
  std::shared_ptr<Capture> capture = nullptr;  // that it is a part of
  Steps seen = {};
};
// From cudaStreamBeginCapture to its end.
struct Capture {
  std::vector<Work> work = {};
  Stream* origin = nullptr;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread = {};
  bool invalidated = false, ended = false;
};
struct Graph {
  std::vector<Work> work;
};
struct GraphExec {
  int number = 0;
  std::vector<Work> work;
};

struct State {
  int devices = 1, capability = 80, multiprocessors = 16;
  size_t memory = size_t{1} << 30, used = 0;
  std::map<unsigned char*, size_t> device;              // start after the guard -> bytes
  std::set<unsigned char*> freeing;                     // of these, by cudaFreeAsync
  std::deque<std::pair<unsigned char*, size_t>> freed;  // given back, watched for late writes
  size_t freed_bytes = 0;
  std::map<unsigned char*, size_t> pinned;
  std::map<const void*, int> shared_allowed;
  Stream legacy;
  std::set<Stream*> streams;
  int next_stream = 1, next_event = 1, next_graph = 1;  // numbers, for messages
  int fail_in = -1;                                     // calls until one fails; below 0: none does
  cudaError_t fault = cudaSuccess;
  bool sticky = false, stuck = false;
  long kernels = 0, graphs = 0, waits = 0;

  void read_environment();
};
State& state();

// First thing of every call: is it this one's turn to fail?
cudaError_t turn();
#define RETURN_ERROR(call) \
  if (const cudaError_t error = (call); error != cudaSuccess) return error
#define EMULATED_CALL() RETURN_ERROR(turn())

Stream& stream_of(Stream* stream);
std::vector<Stream*> all_streams();

// On the stream, or into the capture that it is a part of.
cudaError_t queue(Stream* stream, Work work);
// What is queued on it, up to what fills `until` or to its end.
void run(Stream& stream, const Record* until = nullptr);
void check_all_guards();

// What captures under way refuse (captures.cpp), cudaSuccess where they do not.
cudaError_t admit(Stream& stream);  // anything at all on it
cudaError_t refuse_unsafe();
cudaError_t refuse_default_stream();
cudaError_t refuse_device_wait();
cudaError_t refuse_wait(Stream& stream);
cudaError_t refuse_wait(const Event& event);
cudaError_t refuse_captured(Stream& stream, cudaError_t error);  // what no capture takes
void capture_work(Stream& stream, Work work);
std::shared_ptr<Record> capture_record(const Stream& stream);
// Where the stream is captured or the event is; `record`: its last, nullptr if there is none.
cudaError_t capture_wait(Stream& stream, const Record* record);

// Ends the process when queued work fits; `what` is done to it: "cudaFree of 16 bytes".
void abort_if_queued(const std::string& what, const std::function<bool(const Work&)>& fits);
void abort_if_used(const std::string& what, Range memory, const Stream* but_on = nullptr);
// The allocations that words of these arguments are addresses in.
std::vector<Range> pointed_at(const void* arguments, size_t bytes);
std::string bytes_text(size_t n);

}  // namespace emulator
