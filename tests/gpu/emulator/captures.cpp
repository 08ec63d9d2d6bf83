// Captures of streams, and what is refused while one is under way: the rules of the programming
// guide ("Prohibited and unhandled operations", "Invalidation") and of the runtime's manual, 13.0.
//
//   - A stream that is captured, or an event recorded on one, has no state to ask for or to wait
//     for: cudaErrorStreamCaptureUnsupported, cudaErrorCapturedEvent. Nor has the device as long as
//     any stream is captured.
//   - The default stream comprises all streams that were not made non-blocking: while one of those
//     is captured it is of no use, and neither is what works on it, as cudaMemcpy does:
//     cudaErrorStreamCaptureImplicit.
//   - A thread that captures must not call what is "potentially unsafe", unless it captures in
//     relaxed mode; nor must any thread while another captures in global mode. The manual names
//     cudaMalloc and no other. Here it is all that takes or frees memory, or waits:
//     cudaErrorStreamCaptureUnsupported.
//   - Dependencies do not cross the border of a capture: an event of another capture
//     (cudaErrorStreamCaptureMerge) or of none (cudaErrorStreamCaptureIsolation) is not waited for.
//   - Streams that join by such a wait must be joined to the first again before the end, the end is
//     the first one's (cudaErrorStreamCaptureUnjoined, ...Unmatched), and the thread's that began
//     (...WrongThread).
//   - Each of these invalidates the capture: its streams then refuse everything
//     (cudaErrorStreamCaptureInvalidated) until it is ended, which gives that error and no graph.
//     Only a second begin leaves it as it is.
// Stricter than any rule: copies of pageable memory are refused, as they would be read when the
// graph runs.
#include <algorithm>
#include <utility>

#include "tests/gpu/emulator/include/emulator.h"
#include "tests/gpu/emulator/runtime.h"

namespace emulator {
namespace {

cudaError_t refuse(Capture& capture, cudaError_t error) {
  if (capture.invalidated) return cudaErrorStreamCaptureInvalidated;
  capture.invalidated = true;
  return error;
}

std::vector<Stream*> captured_streams() {
  std::vector<Stream*> captured;
  for (Stream* s : state().streams)
    if (s->capture != nullptr) captured.push_back(s);
  return captured;
}

// Is this thread kept from unsafe calls by it?
bool prohibits(const Capture& capture) {
  const bool own = capture.thread == std::this_thread::get_id();
  return own ? capture.mode != cudaStreamCaptureModeRelaxed
             : capture.mode == cudaStreamCaptureModeGlobal;
}

// Everything that the stream adds, waits included.
void step(Stream& s) { ++s.seen[s.number]; }

bool is_joined(const Capture& capture, const Stream& other) {
  const auto known = capture.origin->seen.find(other.number);
  return known != capture.origin->seen.end() && known->second >= other.seen.at(other.number);
}

}  // namespace

cudaError_t refuse_unsafe() {
  bool refused = false;
  for (Stream* s : captured_streams())
    if (prohibits(*s->capture)) s->capture->invalidated = refused = true;
  return refused ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

cudaError_t refuse_default_stream() {
  bool refused = false;
  for (Stream* s : captured_streams())
    if (s->blocking) s->capture->invalidated = refused = true;
  return refused ? cudaErrorStreamCaptureImplicit : cudaSuccess;
}

cudaError_t refuse_device_wait() {
  const std::vector<Stream*> captured = captured_streams();
  for (Stream* s : captured) s->capture->invalidated = true;
  return captured.empty() ? cudaSuccess : cudaErrorStreamCaptureUnsupported;
}

cudaError_t refuse_wait(Stream& s) {
  if (s.capture != nullptr) return refuse(*s.capture, cudaErrorStreamCaptureUnsupported);
  if (&s == &state().legacy)
    if (const cudaError_t e = refuse_default_stream(); e != cudaSuccess) return e;
  return refuse_unsafe();
}

cudaError_t refuse_wait(const Event& event) {
  if (event.last != nullptr && event.last->capture != nullptr) {
    event.last->capture->invalidated = true;  // as long as it is under way
    return cudaErrorCapturedEvent;
  }
  return refuse_unsafe();
}

cudaError_t refuse_captured(Stream& s, cudaError_t error) {
  return s.capture == nullptr ? cudaSuccess : refuse(*s.capture, error);
}

cudaError_t admit(Stream& s) {
  if (&s == &state().legacy) return refuse_default_stream();
  return s.capture != nullptr && s.capture->invalidated ? cudaErrorStreamCaptureInvalidated
                                                        : cudaSuccess;
}

void capture_work(Stream& s, Work work) {
  s.capture->work.push_back(std::move(work));
  step(s);
}

std::shared_ptr<Record> capture_record(const Stream& s) {
  auto record = std::make_shared<Record>();
  record->capture = s.capture, record->seen = s.seen;
  return record;
}

cudaError_t capture_wait(Stream& s, const Record* record) {
  Capture* const theirs = record == nullptr ? nullptr : record->capture.get();
  if (theirs == nullptr) return refuse(*s.capture, cudaErrorStreamCaptureIsolation);
  if (theirs->ended) {
    if (s.capture != nullptr) s.capture->invalidated = true;
    return cudaErrorCapturedEvent;
  }
  if (theirs->invalidated) return cudaErrorStreamCaptureInvalidated;
  if (&s == &state().legacy) return refuse(*theirs, cudaErrorStreamCaptureImplicit);
  if (s.capture == nullptr) {  // it joins
    s.capture = record->capture, s.seen.clear();
  } else if (s.capture.get() != theirs) {
    theirs->invalidated = true;
    return refuse(*s.capture, cudaErrorStreamCaptureMerge);
  }
  for (const auto& [stream, steps] : record->seen) {
    int& known = s.seen[stream];
    known = std::max(known, steps);
  }
  step(s);
  return cudaSuccess;
}

}  // namespace emulator

using emulator::Capture;
using emulator::state;
using emulator::Stream;
using emulator::turn;

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  EMULATED_CALL();
  if (mode < cudaStreamCaptureModeGlobal || mode > cudaStreamCaptureModeRelaxed)
    return cudaErrorInvalidValue;
  if (stream == nullptr) return cudaErrorStreamCaptureUnsupported;
  if (stream->capture != nullptr) return cudaErrorIllegalState;
  stream->capture = std::make_shared<Capture>();
  stream->capture->origin = stream, stream->capture->mode = mode;
  stream->capture->thread = std::this_thread::get_id();
  stream->seen.clear();
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  const cudaError_t fault = turn();
  if (stream == nullptr || stream->capture == nullptr)
    return fault != cudaSuccess ? fault : cudaErrorIllegalState;
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture->origin != stream) return emulator::refuse(*capture, cudaErrorStreamCaptureUnmatched);
  if (capture->mode != cudaStreamCaptureModeRelaxed &&
      capture->thread != std::this_thread::get_id())
    return emulator::refuse(*capture, cudaErrorStreamCaptureWrongThread);
  bool joined = true;
  for (Stream* s : emulator::captured_streams())
    if (s->capture == capture) {
      joined = joined && (s == stream || emulator::is_joined(*capture, *s));
      s->capture = nullptr;
    }
  capture->ended = true;
  if (fault != cudaSuccess) return fault;
  if (capture->invalidated) return cudaErrorStreamCaptureInvalidated;
  if (!joined) return cudaErrorStreamCaptureUnjoined;
  *graph = new emulator::Graph{std::move(capture->work)};
  return cudaSuccess;
}
