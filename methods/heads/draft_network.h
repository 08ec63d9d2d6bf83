// The small transformers of EAGLE and Falcon, which read the target's features: one or two decoder
// layers after an input stage, with a KV cache of their own, in an engine session of their own. The
// slots of a batch share it: each has a sequence, and a forward has rows of all of them.
//
// A pair is (feature of position t, embedding of the token at t + 1); it stands at position t of
// the network's cache and predicts the feature of the next position(s), whose token the head tells
// (docs/adapters.md). Pairs of the text are committed with the target's true features; what a draft
// computes from predicted ones is dropped with it.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/row_program.h"
#include "engine/session.h"
#include "methods/heads/adapter.h"
#include "methods/method.h"

namespace evalrun::methods {

class DraftNetwork final : public DraftGroup {
 public:
  enum class Input {
    kLinear,     // W [embedding ; feature] + b: EAGLE-1/2, and Falcon without LSTM
    kPerToken,   // two LSTM layers without state (Falcon as released)
    kRecurrent,  // two LSTM layers along the pairs (Falcon's text)
    kPaired      // the layer reads both, each normed; true features are W [three streams] (EAGLE-3)
  };
  struct Options {
    engine::SessionOptions session;  // of the target
    int slots = 1;
    engine::WeightStorage storage = engine::WeightStorage::kInt8Group;
    int layers = 1;
    Input input = Input::kLinear;
    double scale = 1;  // LSTM: of its input and output
  };
  // Reads everything but what a method adds, and finishes the reader.
  DraftNetwork(AdapterReader& adapter, const engine::Model& target, const Options& options);

  int feature_width() const { return feature_width_; }  // of true features: d_model or 3 d_model
  int slots() const { return options_.slots; }
  int length(int slot) const { return session_->length(slot); }  // pairs committed
  int capacity() const { return session_->capacity(); }
  void rewind(int pairs, int slot);
  // What is looked at from now on: the `best` likeliest tokens (and the log of the sum over all),
  // or with 0, the default, logits.
  void want_best(int best, bool log_sums = false) { best_ = best, log_sums_ = log_sums; }
  // Or draws, by Row::draw, where distributions are kept (not null). Outlives every run.
  void want_draws(engine::DistributionStore* dists, const engine::SamplingParams& sampling) {
    dists_ = dists, sampling_ = &sampling;
  }

  // ---- Forwards: begin, add rows, run, look at outputs, add rows that go on from these, run ...
  // Rows of a draft that a slot adds at most, all its forwards together.
  void expect(int rows) { most_rows_ = rows; }
  int room() const override { return engine::kMaxRows / most_rows_; }
  void begin() override;
  struct Row {
    int slot = 0;
    int32_t token = -1;
    std::span<const float> feature;  // [feature_width] true, [d_model] predicted
    bool predicted = false;
    int parent = -1;    // row, -1 = the committed pairs
    int block = -1;     // rows of one block see each other; numbered by slot
    int previous = -1;  // whose LSTM state it goes on from; -1 = that of the last committed pair
    bool read = false;  // its scores and feature are wanted
    bool keep = false;  // becomes a committed pair, after those that the slot adds before it
    engine::DistributionDraw draw =
        {};  // with want_draws, of rows that are read; its row is set by add()
  };
  // Copies what it is given. Returns the row's number. Rows stay, and numbers count on from theirs,
  // until a forward that kept some. Rows of a slot stand together.
  int add(const Row& row);
  void run() override;
  // Of a row that was read in the last forward, over the draft vocabulary; valid until the next.
  engine::RowScores scores(int row) const;
  // Predicted feature of a row that was read; valid as long as the row stays, and then until more
  // rows are added.
  std::span<const float> feature(int row) const;

  // Target id of a draft id.
  int32_t token(int draft_id) const {
    return ids_.empty() ? draft_id : ids_[static_cast<size_t>(draft_id)];
  }
  const std::vector<int32_t>& ids() const { return ids_; }  // empty = they are the target's
  // What a forward reads, as a share of what one of the target does: its price in plain steps.
  double relative_cost() const { return relative_cost_; }
  size_t weight_bytes() const { return weight_bytes_; }  // without what it shares with the target
  size_t kv_bytes() const { return session_->kv_bytes(); }
  void add_kept(KeptMemory& kept) const;

 private:
  struct Staged {
    int32_t token;
    bool predicted, keep;
    int slot, previous;
  };
  struct Drawn {  // tokens of a row among all that were drawn
    int first = 0, n = 0;
  };
  // Values of program_, [staged][input width of the network] but for the first.
  int join_pairs(std::span<const float> scale, float divisor);
  int linear_inputs();
  int paired_inputs();
  int lstm_inputs();
  void join_on_the_host(std::span<const float> scale, float divisor);
  void recurrent_inputs();
  void lstm_row(std::span<const float> in, std::span<float> state);
  engine::InputView inputs();
  void commit();

  const engine::Model& target_;
  Options options_;
  int d_ = 0, feature_width_ = 0;
  std::vector<int32_t> ids_;
  engine::WeightMatrix input_, lstm_[2], hidden_[2], skip_;
  engine::SharedVector input_bias_, lstm_bias_[2], skip_bias_;
  std::vector<float> input_scale_, skip_scale_;  // of the parts of an input (AdapterReader)
  std::shared_ptr<const engine::Model> net_;
  std::unique_ptr<engine::Session> session_;
  double relative_cost_ = 0;
  size_t weight_bytes_ = 0;

  std::vector<Staged> staged_;
  std::vector<engine::Row> rows_;
  std::vector<float> given_;            // [staged][feature_width], features as added
  std::vector<int32_t> tokens_;         // [staged]
  engine::RowProgram program_;          // from given_ to the network's inputs
  int given_value_ = 0;                 // of program_
  std::vector<float> joined_, inputs_;  // recurrent: [staged][2 d], [staged][d]
  std::vector<float> features_;         // [row][d], of rows that were read
  // Recurrent: (h, c) of both layers, [4 d], after each committed pair of a slot, and of rows that
  // stay.
  std::vector<std::vector<float>> states_;  // [slot]
  std::vector<float> row_states_;
  std::vector<float> lstm_in_, gates_;
  int kept_rows_ = 0, first_row_ = 0;  // rows that stay; the first of the last forward
  bool extend_ = false;                // the next forward goes on from them
  int most_rows_ = 1;
  int blocks_ = 0, first_block_ = 0;  // of the staged rows; those of the slot begin here
  int best_ = 0;
  bool log_sums_ = false;
  engine::DistributionStore* dists_ = nullptr;
  const engine::SamplingParams* sampling_ = nullptr;
  std::vector<engine::DistributionDraw> draws_;  // of the staged rows
  std::vector<Drawn> drawn_;                     // [staged]
  engine::ForwardResult result_;                 // of the last forward
  std::vector<int> path_;                        // of all paths in turn
  std::vector<engine::SequencePath> paths_;
};

// Parts of an adapter that are a decoder layer, and the shape of such layers (config.n_heads ...).
engine::ModelConfig draft_config(const AdapterReader& adapter, const engine::Model& target,
                                 int layers);
std::shared_ptr<const engine::LayerWeights> read_draft_layer(AdapterReader& adapter, int layer,
                                                             const engine::ModelConfig& config,
                                                             engine::WeightStorage storage);

}  // namespace evalrun::methods
