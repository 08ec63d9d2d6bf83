// Streams, events and graphs: queues that run when somebody waits for them. Captures: captures.cpp.
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "tests/gpu/emulator/include/emulator.h"
#include "tests/gpu/emulator/runtime.h"

namespace emulator {
namespace {

std::string name_of(const Stream& s) {
  return s.number == 0 ? "the default stream" : "stream " + std::to_string(s.number);
}
std::string name_of(const Work& work) {
  std::string name =
      work.kernel == nullptr ? work.what : "kernel " + accesses::kernel_name(work.kernel);
  if (work.graph != nullptr) name += " (of graph " + std::to_string(work.graph->number) + ")";
  return name;
}

bool overlap(const Range& a, const Range& b) {
  return a.bytes > 0 && b.bytes > 0 && a.begin < b.begin + b.bytes && b.begin < a.begin + a.bytes;
}
bool uses(const Work& work, const Range& memory) {
  for (const Range& used : work.uses)
    if (overlap(used, memory)) return true;
  return false;
}

[[noreturn]] void abort_for(const std::string& what, const Stream& s, size_t i) {
  std::fprintf(stderr, "emulator: %s, and queued work may use it: %s, %zu of %zu on %s\n",
               what.c_str(), name_of(s.queue[i]).c_str(), i + 1, s.queue.size(),
               name_of(s).c_str());
  std::abort();
}

// What the last cudaEventRecord was given before is done.
void finish(const Record& record) {
  if (record.done) return;
  for (Stream* s : all_streams())
    if (s->number == record.stream) run(*s, &record);
}

}  // namespace

Stream& stream_of(Stream* s) { return s == nullptr ? state().legacy : *s; }

std::vector<Stream*> all_streams() {
  std::vector<Stream*> all(state().streams.begin(), state().streams.end());
  all.push_back(&state().legacy);
  return all;
}

cudaError_t queue(Stream* stream, Work work) {
  Stream& s = stream_of(stream);
  RETURN_ERROR(admit(s));
  for (const unsigned char* p : state().freeing)
    if (const Range memory = accesses::device_block(p); uses(work, memory)) {
      std::fprintf(stderr, "emulator: %s uses %zu bytes that cudaFreeAsync has given back\n",
                   name_of(work).c_str(), memory.bytes);
      std::abort();
    }
  if (s.capture != nullptr)
    capture_work(s, std::move(work));
  else
    s.queue.push_back(std::move(work));
  return cudaSuccess;
}

void run(Stream& s, const Record* until) {
  accesses::all_grids_ended();
  if (s.queue.empty()) return;
  for (bool ended = false; !s.queue.empty() && !ended;) {
    const Work work = std::move(s.queue.front());
    s.queue.pop_front();
    work.run();
    ended = until != nullptr && work.record.get() == until;
  }
  check_all_guards();
}

void abort_if_queued(const std::string& what, const std::function<bool(const Work&)>& fits) {
  for (const Stream* s : all_streams())
    for (size_t i = 0; i < s->queue.size(); ++i)
      if (fits(s->queue[i])) abort_for(what, *s, i);
}

void abort_if_used(const std::string& what, Range memory, const Stream* but_on) {
  for (const Stream* s : all_streams())
    for (size_t i = 0; s != but_on && i < s->queue.size(); ++i)
      if (uses(s->queue[i], memory)) abort_for(what, *s, i);
}

cudaError_t queue_work(Stream* stream, const std::function<void()>& run, const char* what,
                       std::initializer_list<const void*> arrays) {
  Work work;
  work.run = run, work.what = what;
  work.uses = pointed_at(std::data(arrays), arrays.size() * sizeof(void*));
  return queue(stream, std::move(work));
}

}  // namespace emulator

using emulator::state;
using emulator::turn;
using emulator::Work;

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  EMULATED_CALL();
  *stream = new emulator::Stream{.number = state().next_stream++,
                                 .blocking = (flags & cudaStreamNonBlocking) == 0};
  state().streams.insert(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (!stream->queue.empty())
    emulator::abort_for("cudaStreamDestroy of " + emulator::name_of(*stream), *stream, 0);
  if (stream->capture != nullptr) {
    std::fprintf(stderr, "emulator: cudaStreamDestroy of %s while it is captured\n",
                 emulator::name_of(*stream).c_str());
    std::abort();
  }
  state().streams.erase(stream);
  delete stream;
  return turn();
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  EMULATED_CALL();
  RETURN_ERROR(emulator::refuse_wait(emulator::stream_of(stream)));
  ++state().waits;
  emulator::run(emulator::stream_of(stream));
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  EMULATED_CALL();
  RETURN_ERROR(emulator::refuse_wait(emulator::stream_of(stream)));
  return emulator::stream_of(stream).queue.empty() ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaDeviceSynchronize() {
  EMULATED_CALL();
  RETURN_ERROR(emulator::refuse_device_wait());
  ++state().waits;
  for (emulator::Stream* s : emulator::all_streams()) emulator::run(*s);
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  EMULATED_CALL();
  *event = new emulator::Event{.number = state().next_event++};
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  emulator::abort_if_queued("cudaEventDestroy of event " + std::to_string(event->number),
                            [event](const Work& work) { return work.event == event; });
  delete event;
  return turn();
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  EMULATED_CALL();
  const emulator::Stream& s = emulator::stream_of(stream);
  RETURN_ERROR(emulator::admit(emulator::stream_of(stream)));
  if (s.capture != nullptr) {
    event->last = emulator::capture_record(s);
    return cudaSuccess;
  }
  const auto record = std::make_shared<emulator::Record>();
  record->stream = s.number;
  event->last = record;
  Work work;
  work.what = "the record of event " + std::to_string(event->number);
  work.event = event, work.record = record;
  work.run = [record] {
    record->done = true;
    record->ms = std::chrono::duration<double, std::milli>(
                     std::chrono::steady_clock::now().time_since_epoch())
                     .count();
  };
  return emulator::queue(stream, std::move(work));
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  EMULATED_CALL();
  emulator::Stream& s = emulator::stream_of(stream);
  RETURN_ERROR(emulator::admit(s));
  if (s.capture != nullptr || (event->last != nullptr && event->last->capture != nullptr))
    return emulator::capture_wait(s, event->last.get());
  if (event->last == nullptr || event->last->done) return cudaSuccess;
  Work work;
  work.what = "the wait for event " + std::to_string(event->number);
  work.event = event;
  work.run = [record = event->last] {
    emulator::finish(*record);
    emulator::accesses::all_grids_ended();
  };
  return emulator::queue(stream, std::move(work));
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  EMULATED_CALL();
  RETURN_ERROR(emulator::refuse_wait(*event));
  ++state().waits;
  if (event->last != nullptr) emulator::finish(*event->last);
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  EMULATED_CALL();
  for (const emulator::Event* event : {begin, end}) {
    if (event->last == nullptr) return cudaErrorInvalidResourceHandle;
    if (event->last->capture != nullptr) return emulator::refuse_wait(*event);
    if (!event->last->done) return cudaErrorNotReady;
  }
  *ms = static_cast<float>(end->last->ms - begin->last->ms);
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* ready, cudaGraph_t graph, unsigned long long) {
  EMULATED_CALL();
  *ready = new emulator::GraphExec{state().next_graph++, graph->work};
  for (Work& work : (*ready)->work) work.graph = *ready;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  EMULATED_CALL();
  RETURN_ERROR(emulator::admit(emulator::stream_of(stream)));
  ++state().graphs;
  for (const Work& work : graph->work) (void)emulator::queue(stream, work);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  emulator::abort_if_queued("cudaGraphExecDestroy of graph " + std::to_string(graph->number),
                            [graph](const Work& work) { return work.graph == graph; });
  delete graph;
  return cudaSuccess;
}
