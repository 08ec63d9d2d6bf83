// What `evalrun capture --out DIR` writes: greedy answers of a model, or answers of
// a data set, with the model's hidden states, for training what drafts for it.
//
//   DIR/capture.json                 what all parts have in common: CaptureSettings
//   DIR/part-00000.safetensors, ...  metadata {"format": "evalrun-capture", "version": "1"}
//                                    (capture.json has version 2 when answers is "dataset", and 3
//                                    when there are dialogues)
//
// A part holds S sequences of N tokens in all, prompt and answer:
//   tokens   I32  [N]           prompt, then answer (the stop token included when reached)
//   start    I64  [S+1]         sequence s is [start[s], start[s+1])
//   prompt   I32  [S]           tokens before the first answer that is learnt
//   line     I64  [S]           line of the input file, from 0, empty lines counted
//   ended    U8   [S]           1 = the last token is a stop token
//   hidden   BF16 [N, d_model]  after the final norm: row i is what token i+1 is read from. The
//                               last token of a sequence was never fed; its row is zero
//   residual BF16 [N, layers*d_model]  streams entering CaptureSettings::residual_layers, side by
//                               side; not there without such layers; zero in last rows too
// and in a capture of dialogues, with A answers in all:
//   answers       I64 [S+1]     answers of sequence s are [answers[s], answers[s+1])
//   answer_first  I32 [A]       first token of an answer, from the begin of its sequence
//   answer_last   I32 [A]       the token after its last one
//
// A dialogue is one sequence with an answer for each turn. Where the chat template writes earlier
// turns otherwise than they were decoded, the rest of the dialogue is another sequence of its line;
// its answers are the new ones alone. All sequences of a line stand in one part, side by side.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/model/model.h"

namespace evalrun::runners {

// All of it decides what the parts hold, so all of it must be the same when a capture goes on. Only
// the model's path may change: its hash says whether it is the same model.
struct CaptureSettings {
  std::string model_name, model_path, model_hash, dtype;
  int d_model = 0, n_layers = 0, vocab_size = 0;
  std::string kv_dtype, bits;    // bits: "cross-isa" or "one-isa"
  std::string chat_template;     // what --chat-template names, "" = the model's own
  std::string answers = "self";  // "self" or "dataset"
  bool dialogues = false;        // a line has several answers
  int max_new = 0;
  std::vector<int> residual_layers;
  std::string in_hash;  // SHA-256 of the input file
  int64_t n_lines = 0;  // of the input file
  // Fills in what the model decides.
  void describe(const engine::Model& model);
};

struct CapturedSequence {
  struct Answer {
    int32_t first = 0, last = 0;  // tokens, the last one excluded
  };
  int64_t line = 0;
  std::vector<Answer> answers;             // at least one, ascending
  bool ended = false;                      // the last answer, with a stop token
  std::vector<int32_t> tokens;             // prompt and answer
  std::vector<uint16_t> hidden, residual;  // bfloat16, [tokens, d_model], [tokens, layers*d_model]
};

// One process at a time writes to a folder.
class CaptureFolder {
 public:
  // Makes the folder, or goes on with the one there is. Throws usage_error naming the field when it
  // was begun with other settings, and when another process writes to it; data_error for a broken
  // capture.json or part.
  CaptureFolder(std::string path, const CaptureSettings& settings);
  ~CaptureFolder();
  CaptureFolder(const CaptureFolder&) = delete;
  CaptureFolder& operator=(const CaptureFolder&) = delete;

  const std::string& path() const { return path_; }
  bool holds(int64_t line) const { return held_[static_cast<size_t>(line)]; }
  // Over all parts.
  int64_t n_parts() const { return n_parts_; }
  int64_t n_sequences() const { return n_sequences_; }
  int64_t n_tokens() const { return n_tokens_; }

  // Adds a part with these sequences, at least one; it is on the disk afterwards. Throws data_error
  // when it cannot be written.
  void write(std::span<const CapturedSequence> sequences);

 private:
  void lock();
  void read_parts();
  void read_part(const std::string& file);

  std::string path_;
  CaptureSettings settings_;
  int lock_ = -1;  // the folder, open
  int next_part_ = 0;
  int64_t n_parts_ = 0, n_sequences_ = 0, n_tokens_ = 0;
  std::vector<bool> held_;  // [line]
};

}  // namespace evalrun::runners
