// Greedy answers to many prompts at once, with the hidden state of every token: data for training
// what drafts for this model, made by the model itself. Or answers that are given, then only the
// states are the model's.
//
// Continuous batching: one forward holds one row of every sequence that decodes and rows of the
// prompts that were admitted last; a sequence that ends makes room for the next prompt. A dialogue
// goes on in its place: its next turn is fed behind the answer before, which is not fed again. The
// outputs of a row do not depend on what else is in the request (engine/session.h), so tokens and
// hidden states are those of decoding each prompt alone, bit for bit.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/base/clock.h"
#include "engine/session.h"
#include "runners/train/capture_folder.h"

namespace evalrun::runners {

struct CaptureTurn {
  std::vector<int32_t> prompt;  // all that stands before the answer, earlier turns included
  std::vector<int32_t> answer;  // to take in place of the model's own; empty = its own
};

struct CapturePrompt {
  int64_t line = 0;             // of the input file, from 0
  std::vector<int32_t> tokens;  // at least one
  std::vector<int32_t> answer;  // to take in place of the model's own; empty = its own
  // The turn of a dialogue after these answers; nothing ends it. Null = there is one turn.
  std::function<std::optional<CaptureTurn>(std::span<const std::vector<int32_t>> answers)> next =
      {};
  size_t most_tokens = 0;  // of the prompts that `next` gives
};

struct CaptureProgress {
  int64_t done = 0, total = 0;  // lines
  int64_t generated = 0;        // tokens of this run's answers
  double elapsed_s = 0, left_s = 0;
};

struct CaptureOptions {
  int parallel = 32;  // sequences at once, 1..kMaxRows
  int max_new = 0;    // tokens of an answer; a given one is cut there
  std::vector<int> residual_layers;
  std::vector<int32_t> stop_ids;
  // A part is written when its sequences have this many tokens; it is held in memory until then.
  int64_t part_tokens = int64_t{1} << 16;
  int prompt_rows = 256;     // most rows of prompts in one forward
  int64_t limit_tokens = 0;  // end when the folder holds this many tokens, earlier parts included
  double seconds = 0;        // end after so long; 0 = no limit, as above
  std::function<bool()> stop = {};  // asked before each forward; true = end
  std::function<void(const CaptureProgress&)> progress = {};
};

struct CaptureOutcome {
  int64_t lines = 0, sequences = 0, answers = 0;  // of this run
  int64_t prompt_tokens = 0, generated = 0;       // given answers count, too
  int64_t left = 0;                               // prompts that were not begun
  bool interrupted = false;                       // options.stop said so
  double seconds = 0;
};

// Decodes the prompts the folder does not hold, in their order, and writes them to it. An end that
// is asked for (limit, time, stop) admits no further prompt; those begun are finished and written.
// `session` gives the settings of the engine; its number of sequences and tokens are set here.
// Throws data_error when the caches do not fit into memory or a part cannot be written.
CaptureOutcome capture(const std::shared_ptr<const engine::Model>& model,
                       engine::SessionOptions session, std::span<const CapturePrompt> prompts,
                       const CaptureOptions& options, CaptureFolder& folder, base::Clock& clock);

}  // namespace evalrun::runners
