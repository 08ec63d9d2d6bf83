-- Tables of an evalrun result database, schema version 13. Raw values only; ratios are born in
-- views.sql, and what keeps tallies true is in triggers.sql. Field by field in docs/schema.md. Times
-- are nanoseconds, ids of tokens int32.

CREATE TABLE meta (
  name  TEXT PRIMARY KEY,
  value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE run (
  id             INTEGER PRIMARY KEY,
  key            TEXT NOT NULL UNIQUE,      -- equal keys resume
  label          TEXT NOT NULL,
  suite          TEXT NOT NULL,
  suite_json     TEXT NOT NULL,
  commit_id      TEXT NOT NULL,
  version        TEXT NOT NULL,
  command        TEXT NOT NULL,
  started        TEXT NOT NULL,             -- UTC, ISO 8601
  finished       TEXT,                      -- NULL until every cell is measured
  schema_version INTEGER NOT NULL           -- of the program that wrote it
);
CREATE INDEX run_label ON run (label);

-- What a run measures in the end, on whatever machines and in whatever shards. Runs whose plans have
-- equal keys can be merged. None in runs from before version 13.
CREATE TABLE plan (
  run_id  INTEGER PRIMARY KEY REFERENCES run (id) ON DELETE CASCADE,
  key     TEXT NOT NULL,
  arms    INTEGER NOT NULL,                 -- how many of each there are in the undivided plan
  prompts INTEGER NOT NULL,
  repeats INTEGER NOT NULL,
  samples INTEGER NOT NULL
);

-- Facts that hold for the whole run; where one machine measured it, that machine's as well.
CREATE TABLE environment (
  run_id INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
  name   TEXT NOT NULL,
  value  TEXT NOT NULL,
  PRIMARY KEY (run_id, name)
) WITHOUT ROWID;

-- Who measured: a process on a machine is one row. Its key is a hash of what identifies the machine
-- for timing.
CREATE TABLE machine (
  id     INTEGER PRIMARY KEY,
  run_id INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
  key    TEXT NOT NULL,
  name   TEXT NOT NULL,                     -- of the host
  UNIQUE (run_id, key)
);

-- Its environment, and what rows cost there.
CREATE TABLE machine_fact (
  machine_id INTEGER NOT NULL REFERENCES machine (id) ON DELETE CASCADE,
  name       TEXT NOT NULL,
  value      TEXT NOT NULL,
  PRIMARY KEY (machine_id, name)
) WITHOUT ROWID;

CREATE TABLE arm (
  id                    INTEGER PRIMARY KEY,
  run_id                INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
  key                   TEXT NOT NULL,
  label                 TEXT NOT NULL,
  method                TEXT NOT NULL,
  params                TEXT NOT NULL,
  method_version        TEXT NOT NULL,
  role                  TEXT NOT NULL CHECK (role IN ('baseline', 'aa', 'method')),
  lossless              TEXT NOT NULL CHECK (lossless IN ('none', 'greedy', 'both')),
  model                 TEXT NOT NULL,
  model_hash            TEXT NOT NULL,
  draft                 TEXT NOT NULL,
  draft_hash            TEXT NOT NULL,
  dtype                 TEXT NOT NULL,
  isa                   TEXT NOT NULL,
  device                TEXT NOT NULL,
  threads               INTEGER NOT NULL,
  batch                 INTEGER NOT NULL,
  kv_cache              INTEGER NOT NULL,
  temperature           REAL NOT NULL,
  top_p                 REAL NOT NULL,
  top_k                 INTEGER NOT NULL,
  max_new               INTEGER NOT NULL,
  ignore_eos            INTEGER NOT NULL,
  settings              TEXT NOT NULL,      -- JSON object: EVALRUN_* and all else that moves a figure
  weight_bytes          INTEGER NOT NULL,
  extra_parameter_bytes INTEGER NOT NULL,
  kv_bytes              INTEGER NOT NULL,
  peak_bytes            INTEGER NOT NULL,
  UNIQUE (run_id, key)
);

CREATE TABLE prompt (
  id            INTEGER PRIMARY KEY,
  run_id        INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
  key           TEXT NOT NULL,
  task          TEXT NOT NULL,
  name          TEXT NOT NULL,              -- id inside the task, e.g. 'gsm8k/17'
  category      TEXT NOT NULL,
  language      TEXT NOT NULL,
  rendered_hash TEXT NOT NULL,
  turns         TEXT NOT NULL,              -- JSON array of the user messages
  reference     TEXT,
  group_name    TEXT NOT NULL DEFAULT '',   -- prompts of a task that belong together; '' = on its own
  UNIQUE (run_id, key)
);

-- Parts of a plan that were to be measured here: number of count, from 1. None = all of it.
CREATE TABLE shard (
  run_id INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
  count  INTEGER NOT NULL,
  number INTEGER NOT NULL,
  PRIMARY KEY (run_id, count, number)
) WITHOUT ROWID;

-- Which of them each prompt of the plan is in.
CREATE TABLE shard_prompt (
  prompt_id INTEGER NOT NULL REFERENCES prompt (id) ON DELETE CASCADE,
  count     INTEGER NOT NULL,
  number    INTEGER NOT NULL,
  PRIMARY KEY (prompt_id, count)
) WITHOUT ROWID;

-- Prompts as the model reads them, first turns; runs share them.
CREATE TABLE rendered (
  hash TEXT PRIMARY KEY,                    -- SHA-256, prompt.rendered_hash
  text TEXT NOT NULL
) WITHOUT ROWID;

-- One prompt, one arm, one repeat or sample. A failed one is a row that says so.
CREATE TABLE generation (
  id            INTEGER PRIMARY KEY,
  run_id        INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
  arm_id        INTEGER NOT NULL REFERENCES arm (id) ON DELETE CASCADE,
  prompt_id     INTEGER NOT NULL REFERENCES prompt (id) ON DELETE CASCADE,
  repeat        INTEGER NOT NULL,
  sample        INTEGER NOT NULL,
  seed          INTEGER NOT NULL,           -- 64 bits, stored as signed
  block         INTEGER NOT NULL,
  slot          INTEGER NOT NULL,
  status        TEXT NOT NULL,              -- 'ok' or 'failed: ...'
  fault         TEXT NOT NULL DEFAULT '',   -- planted fault; '' in real measurements
  tokens_hash   TEXT NOT NULL,              -- over the token ids of all turns
  steps_hash    TEXT NOT NULL,              -- over drafted, depth, accepted, emitted of all steps
  total_ns      INTEGER NOT NULL,
  tokenize_ns   INTEGER NOT NULL,
  detokenize_ns INTEGER NOT NULL,
  started       TEXT NOT NULL,
  distinct_share REAL,                      -- distinct 4-grams / 4-grams, the turn with the lowest
  cycle         INTEGER NOT NULL,           -- tokens at the end of a turn that repeat, the longest
  asked         INTEGER,                    -- places asked in a replay; NULL = decoded freely
  machine_id    INTEGER REFERENCES machine (id),  -- NULL = the run's only one, or not known
  tally         BLOB,                       -- of its turns, steps and nodes (results/tally.h); NULL = read them
  UNIQUE (arm_id, prompt_id, repeat, sample)
);
CREATE INDEX generation_run ON generation (run_id);
CREATE INDEX generation_prompt ON generation (prompt_id);

-- The counters repeat what the step rows add up to (v_accounting proves it), so that a table over
-- 10^5 generations need not read 10^7 steps. Wide columns stand last: reading the others skips them.
CREATE TABLE turn (
  id               INTEGER PRIMARY KEY,
  generation_id    INTEGER NOT NULL REFERENCES generation (id) ON DELETE CASCADE,
  idx              INTEGER NOT NULL,
  n_prompt_tokens  INTEGER NOT NULL,
  n_tokens         INTEGER NOT NULL,        -- emitted, the prefill's token and a stop token included
  n_steps          INTEGER NOT NULL,
  drafted          INTEGER NOT NULL,
  drafted_depth    INTEGER NOT NULL,
  accepted         INTEGER NOT NULL,
  emitted          INTEGER NOT NULL,        -- by steps
  target_forwards  INTEGER NOT NULL,
  rows             INTEGER NOT NULL,
  undrafted        INTEGER NOT NULL,        -- steps in which nothing was drafted
  draft_ns         INTEGER NOT NULL,
  verify_ns        INTEGER NOT NULL,
  commit_ns        INTEGER NOT NULL,
  other_ns         INTEGER NOT NULL,
  prefill_ns       INTEGER NOT NULL,
  draft_prefill_ns INTEGER NOT NULL,
  decode_ns        INTEGER NOT NULL,
  stop             TEXT NOT NULL,
  tokens           BLOB NOT NULL,           -- int32 little-endian
  text             TEXT NOT NULL,
  UNIQUE (generation_id, idx)
);

CREATE TABLE step (
  turn_id         INTEGER NOT NULL REFERENCES turn (id) ON DELETE CASCADE,
  idx             INTEGER NOT NULL,
  rows            INTEGER NOT NULL,
  drafted         INTEGER NOT NULL,
  drafted_depth   INTEGER NOT NULL,
  accepted        INTEGER NOT NULL,
  emitted         INTEGER NOT NULL,
  target_forwards INTEGER NOT NULL,
  draft_ns        INTEGER NOT NULL,
  verify_ns       INTEGER NOT NULL,
  commit_ns       INTEGER NOT NULL,
  other_ns        INTEGER NOT NULL,
  PRIMARY KEY (turn_id, idx)
) WITHOUT ROWID;

-- How often draft nodes at one place of the tree were put to the test; places never tested are left
-- out. None in runs from before version 3.
CREATE TABLE node (
  turn_id  INTEGER NOT NULL REFERENCES turn (id) ON DELETE CASCADE,
  depth    INTEGER NOT NULL,                -- 1 = child of the root, 64 = 64 and deeper
  rank     INTEGER NOT NULL,                -- siblings in front of it, 15 = 15 and more
  tested   INTEGER NOT NULL,
  accepted INTEGER NOT NULL,
  PRIMARY KEY (turn_id, depth, rank)
) WITHOUT ROWID;

-- Where a method that was led along its reference's text would have gone on otherwise.
CREATE TABLE divergence (
  turn_id  INTEGER NOT NULL REFERENCES turn (id) ON DELETE CASCADE,
  idx      INTEGER NOT NULL,                -- of the turn's tokens
  expected INTEGER NOT NULL,                -- the reference's token
  found    INTEGER NOT NULL,                -- the method's own
  gap      REAL,                            -- their logits' difference in plain decoding; NULL = unknown
  spacing  REAL NOT NULL,                   -- of the number format at the larger of the two
  PRIMARY KEY (turn_id, idx)
) WITHOUT ROWID;

-- How turns fared that were decoded beside others. Wall times: what was done for others meanwhile is in
-- them, while the times of `turn` and `step` are the turn's share.
CREATE TABLE batch_turn (
  turn_id        INTEGER PRIMARY KEY REFERENCES turn (id) ON DELETE CASCADE,
  call           INTEGER NOT NULL,          -- numbers what an arm decoded together
  slot           INTEGER NOT NULL,          -- of the batch
  first_token_ns INTEGER NOT NULL,          -- from its admission
  wall_ns        INTEGER NOT NULL           -- from its first token to the end of its last step
);

-- The steps of a batch, once for each turn that took part.
CREATE TABLE batch_step (
  turn_id INTEGER NOT NULL REFERENCES turn (id) ON DELETE CASCADE,
  idx     INTEGER NOT NULL,                 -- of the turn's steps
  number  INTEGER NOT NULL,                 -- of the call's steps
  members INTEGER NOT NULL,                 -- sequences that took part, fillers as well
  rows    INTEGER NOT NULL,                 -- of the target's forwards, of all members
  emitted INTEGER NOT NULL,                 -- of all members
  ns      INTEGER NOT NULL,                 -- of the whole step
  gap_ns  INTEGER NOT NULL,                 -- since the turn had its tokens before
  PRIMARY KEY (turn_id, idx)
) WITHOUT ROWID;

-- Turns that a server answered over HTTP. Times of the client are since the request was sent. The
-- counters of `turn` (n_steps, drafted, accepted, undrafted) repeat what the server counted, and are 0
-- where it does not say; rows of `step` are the pieces that the answer came in. NULL = not said.
CREATE TABLE endpoint_turn (
  turn_id        INTEGER PRIMARY KEY REFERENCES turn (id) ON DELETE CASCADE,
  first_token_ns INTEGER NOT NULL,
  total_ns       INTEGER NOT NULL,          -- to the last byte, also of what the stop rules cut
  attempts       INTEGER NOT NULL,          -- requests sent; the last one is timed
  prompt_ms      REAL,                      -- by the server's clock, like decode_ms
  decode_ms      REAL,
  prompt_tokens  INTEGER,
  cached_tokens  INTEGER,                   -- of the prompt, from the server's cache
  new_tokens     INTEGER,
  drafted        INTEGER,                   -- draft tokens tested
  accepted       INTEGER,
  drafts         INTEGER,                   -- steps that had a draft
  target_steps   INTEGER,                   -- that gave all tokens but the first
  arrivals       TEXT NOT NULL              -- JSON: [[ns, tokens of the piece], ...]
);

-- What the machine did while a generation ran. Processor times are sums over the cores in use.
CREATE TABLE clock (
  generation_id INTEGER PRIMARY KEY REFERENCES generation (id) ON DELETE CASCADE,
  device_mhz    REAL,                       -- of what decodes, at the end; NULL = not readable
  available_ns  INTEGER NOT NULL,           -- wall time times cores
  own_ns        INTEGER NOT NULL,           -- processor time of this process
  others_ns     INTEGER NOT NULL,           -- of other processes and the kernel
  steal_ns      INTEGER NOT NULL,           -- other guests of the host had the cores
  preempted     INTEGER NOT NULL,           -- involuntary context switches
  energy_mj     INTEGER                     -- of processor and memory; NULL = not readable
);

-- What the GPU did that a generation ran on. None in runs on the CPU.
CREATE TABLE gpu (
  generation_id INTEGER PRIMARY KEY REFERENCES generation (id) ON DELETE CASCADE,
  temperature_c REAL,                       -- at the end, like power; NULL = not readable
  power_w       REAL,
  energy_mj     INTEGER,                    -- from beginning to end
  slowed_by     TEXT NOT NULL,              -- why its clock was below the maximum at the end
  -- How long it was busy with each phase, by its own clock; NULL = not measured.
  prefill_ns       INTEGER,
  draft_prefill_ns INTEGER,                 -- before the first step, but for the target's prompt
  draft_ns         INTEGER,
  verify_ns        INTEGER,
  commit_ns        INTEGER,
  graph_misses  INTEGER                  -- meanwhile: set-up that belongs into the warm-up
);

CREATE TABLE score (
  generation_id INTEGER NOT NULL REFERENCES generation (id) ON DELETE CASCADE,
  evaluator     TEXT NOT NULL,
  version       TEXT NOT NULL,
  value         REAL,                       -- NULL when the answer could not be judged
  extracted     TEXT NOT NULL,
  status        TEXT NOT NULL,
  detail        TEXT NOT NULL,
  suspicious    INTEGER NOT NULL,
  facts         TEXT NOT NULL,              -- JSON object
  PRIMARY KEY (generation_id, evaluator, version)
) WITHOUT ROWID;

CREATE TABLE baseline (
  name   TEXT PRIMARY KEY,
  run_id INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
  note   TEXT NOT NULL,
  saved  TEXT NOT NULL
) WITHOUT ROWID;

-- What `evalrun verify` found out about an arm: holds for arms of the same hash, whatever the run.
CREATE TABLE certificate (
  -- Hash of build, method, weights and engine mode; of sampled answers '@' and how they were drawn.
  key      TEXT PRIMARY KEY,
  created  TEXT NOT NULL,                   -- UTC, ISO 8601
  method   TEXT NOT NULL,                   -- as tables name it
  outcome  TEXT NOT NULL CHECK (outcome IN ('holds', 'fails', 'inconclusive', 'lossy')),
  proven   TEXT NOT NULL,                   -- 'greedy', 'greedy+sampling', ..., '' = nothing
  document TEXT NOT NULL                    -- JSON: all that was tested
) WITHOUT ROWID;
