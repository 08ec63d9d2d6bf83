-- Written by evalrun 0.1.0 (three prompts on tests/data/models/tiny-llama), then dumped by SQLite.
PRAGMA application_id = 1702261297;
PRAGMA user_version = 8;
BEGIN TRANSACTION;
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
INSERT INTO "arm" VALUES(1,1,'f13a6520c0b43280e50e359a5fc92c0cdbe808263bd08c57079aea34774de077','ar','ar','','1','baseline','both','tiny-llama','694c47e85ac294f2b909797f9439c8c20dd10589ef896b86c7e913e1d2679f40','','','f32','portable','cpu',1,1,1,0.0,1.0,0,12,1,'{"chat_template":"chatml","order":"interleaved","seed":"1"}',648960,0,430080,26337280);
INSERT INTO "arm" VALUES(2,1,'8cd0b83c06255105e941cc770c76bb75612f0c979bc446ab178e5c9b5edf87a6','ar (A/A)','ar','','1','aa','both','tiny-llama','694c47e85ac294f2b909797f9439c8c20dd10589ef896b86c7e913e1d2679f40','','','f32','portable','cpu',1,1,1,0.0,1.0,0,12,1,'{"chat_template":"chatml","order":"interleaved","seed":"1"}',648960,0,430080,26337280);
INSERT INTO "arm" VALUES(3,1,'0c689ef645cf526e022ed40780205213c1d9f0b500c1b16fddee22667e1d9c7f','pld','pld','adaptive=false,candidates=1,k=10,match=first,min_ngram=1,ngram=3','1','method','both','tiny-llama','694c47e85ac294f2b909797f9439c8c20dd10589ef896b86c7e913e1d2679f40','','','f32','portable','cpu',1,1,1,0.0,1.0,0,12,1,'{"chat_template":"chatml","order":"interleaved","seed":"1"}',648960,0,430080,26337280);
INSERT INTO "arm" VALUES(4,1,'482b028833258e3f6ea8eda84d51f7f8e56925a46f82ebffad5c705e89f4c93b','lookahead','lookahead','adaptive=false,full_match_bonus=false,guesses=7,init=prompt,ngram=5,pool_from_prompt=false,trie=true,window=7','1','method','both','tiny-llama','694c47e85ac294f2b909797f9439c8c20dd10589ef896b86c7e913e1d2679f40','','','f32','portable','cpu',1,1,1,0.0,1.0,0,12,1,'{"chat_template":"chatml","order":"interleaved","seed":"1"}',648960,0,430080,26337280);
CREATE TABLE baseline (
  name   TEXT PRIMARY KEY,
  run_id INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
  note   TEXT NOT NULL,
  saved  TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO "baseline" VALUES('main',1,'','2026-11-25T09:15:16Z');
CREATE TABLE certificate (
  key      TEXT PRIMARY KEY,                -- hash of build, method, weights and engine mode
  created  TEXT NOT NULL,                   -- UTC, ISO 8601
  method   TEXT NOT NULL,                   -- as tables name it
  outcome  TEXT NOT NULL CHECK (outcome IN ('holds', 'fails', 'inconclusive', 'lossy')),
  proven   TEXT NOT NULL,                   -- 'greedy', 'greedy+sampling', ..., '' = nothing
  document TEXT NOT NULL                    -- JSON: all that was tested
) WITHOUT ROWID;
CREATE TABLE clock (
  generation_id INTEGER PRIMARY KEY REFERENCES generation (id) ON DELETE CASCADE,
  device_mhz    REAL,                       -- of what decodes, at the end; NULL = not readable
  available_ns  INTEGER NOT NULL,           -- wall time times cores
  own_ns        INTEGER NOT NULL,           -- processor time of this process
  others_ns     INTEGER NOT NULL,           -- of other processes and the kernel
  steal_ns      INTEGER NOT NULL,           -- other guests of the host had the cores
  preempted     INTEGER NOT NULL            -- involuntary context switches
);
INSERT INTO "clock" VALUES(1,2599.998,32419982,16136000,3864000,0,2);
INSERT INTO "clock" VALUES(2,2599.998,33208284,16595000,0,0,1);
INSERT INTO "clock" VALUES(3,2599.998,199476854,97567000,42433000,0,14);
INSERT INTO "clock" VALUES(4,2599.998,30156816,13520000,26480000,0,4);
INSERT INTO "clock" VALUES(5,2599.998,226069112,105049000,94951000,0,20);
INSERT INTO "clock" VALUES(6,2599.998,23708730,11624000,8376000,0,34);
INSERT INTO "clock" VALUES(7,2599.998,29631288,14791000,5209000,0,4);
INSERT INTO "clock" VALUES(8,2599.998,26170038,12326000,7674000,0,4);
INSERT INTO "clock" VALUES(9,2599.998,65803122,15633000,44367000,0,18);
INSERT INTO "clock" VALUES(10,2599.998,29904288,14689000,15311000,0,2);
INSERT INTO "clock" VALUES(11,2599.998,31600934,15794000,4206000,0,1);
INSERT INTO "clock" VALUES(12,2599.998,278183476,119759000,120241000,0,16);
CREATE TABLE divergence (
  turn_id  INTEGER NOT NULL REFERENCES turn (id) ON DELETE CASCADE,
  idx      INTEGER NOT NULL,                -- of the turn's tokens
  expected INTEGER NOT NULL,                -- the reference's token
  found    INTEGER NOT NULL,                -- the method's own
  gap      REAL,                            -- their logits' difference in plain decoding; NULL = unknown
  spacing  REAL NOT NULL,                   -- of the number format at the larger of the two
  PRIMARY KEY (turn_id, idx)
) WITHOUT ROWID;
CREATE TABLE environment (
  run_id INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
  name   TEXT NOT NULL,
  value  TEXT NOT NULL,
  PRIMARY KEY (run_id, name)
) WITHOUT ROWID;
INSERT INTO "environment" VALUES(1,'architecture','x86_64');
INSERT INTO "environment" VALUES(1,'build','b81ed7e52929');
INSERT INTO "environment" VALUES(1,'build_type','Release');
INSERT INTO "environment" VALUES(1,'chat_template','chatml');
INSERT INTO "environment" VALUES(1,'chat_template_file','tiny-llama/tokenizer_config.json');
INSERT INTO "environment" VALUES(1,'chat_template_sha256','fcf7a096fe99a48fd9ad2b250bf9237e96e8f48bffec1c7ea4d3f225176cd40e');
INSERT INTO "environment" VALUES(1,'commit','b81ed7e52929');
INSERT INTO "environment" VALUES(1,'compiler','GNU 12.2.0');
INSERT INTO "environment" VALUES(1,'cores','2');
INSERT INTO "environment" VALUES(1,'cores_allowed','2');
INSERT INTO "environment" VALUES(1,'cpu','a processor');
INSERT INTO "environment" VALUES(1,'cpu_flags','fma sse4_2 avx f16c avx2 avx512f avx512dq avx512bw avx512vl avx_vnni avx512_bf16 avx512_vnni amx_bf16 amx_tile amx_int8');
INSERT INTO "environment" VALUES(1,'cuda','compiled in');
INSERT INTO "environment" VALUES(1,'data.jsonl:prompts.jsonl','{"loaded":3,"measured":3,"official":0,"origin":"prompts.jsonl","verification":"unverified","version":"1"}');
INSERT INTO "environment" VALUES(1,'forward_bytes','648960');
INSERT INTO "environment" VALUES(1,'kernel','Linux');
INSERT INTO "environment" VALUES(1,'load','1.62 2.87 2.13 3/94 14464');
INSERT INTO "environment" VALUES(1,'memory_bytes','25276502016');
INSERT INTO "environment" VALUES(1,'microcode','0x1');
INSERT INTO "environment" VALUES(1,'model_hash','694c47e85ac294f2b909797f9439c8c20dd10589ef896b86c7e913e1d2679f40');
INSERT INTO "environment" VALUES(1,'model_path','tiny-llama');
INSERT INTO "environment" VALUES(1,'os','Debian GNU/Linux 12 (bookworm)');
INSERT INTO "environment" VALUES(1,'read_bandwidth','103800383877');
INSERT INTO "environment" VALUES(1,'row_cost','{"context":256,"bytes":845568,"rounds":3,"rows":[{"rows":1,"ms":0.766347,"q1_ms":0.742434,"q3_ms":0.79064,"ratio":1.0,"phases":{"weights":0.337816,"attention":0.331327,"norms":0.014910000000000001,"head":0.080785,"waits":0.0008320000000000001}},{"rows":2,"ms":1.411878,"q1_ms":1.404432,"q3_ms":1.423843,"ratio":1.8423481790885852,"phases":{"weights":0.572096,"attention":0.660058,"norms":0.029105,"head":0.143775,"waits":0.0009029999999999998}},{"rows":3,"ms":2.174396,"q1_ms":2.151515,"q3_ms":2.176923,"ratio":2.8373517479679573,"phases":{"weights":0.8792,"attention":0.9888629999999999,"norms":0.043245,"head":0.238989,"waits":0.000988}},{"rows":4,"ms":2.892381,"q1_ms":2.890422,"q3_ms":2.941906,"ratio":3.7742445654514207,"phases":{"weights":1.1903020000000002,"attention":1.3291080000000002,"norms":0.057268,"head":0.315253,"waits":0.0011589999999999999}},{"rows":5,"ms":3.63596,"q1_ms":3.599583,"q3_ms":3.648067,"ratio":4.744534786460964,"phases":{"weights":1.4932800000000002,"attention":1.6489970000000003,"norms":0.071439,"head":0.38910100000000003,"waits":0.001172}},{"rows":6,"ms":4.364039,"q1_ms":4.32917,"q3_ms":4.387356,"ratio":5.694599182876686,"phases":{"weights":1.7918109999999998,"attention":1.9970410000000003,"norms":0.085878,"head":0.482267,"waits":0.0012809999999999998}},{"rows":8,"ms":5.803281,"q1_ms":5.777641,"q3_ms":5.809153,"ratio":7.572654424170774,"phases":{"weights":2.3870359999999993,"attention":2.6422459999999997,"norms":0.11466700000000003,"head":0.6429349999999999,"waits":0.0014210000000000002}},{"rows":12,"ms":8.660817,"q1_ms":8.591840999999999,"q3_ms":8.7058785,"ratio":11.301430031043378,"phases":{"weights":3.6369629999999997,"attention":3.951493,"norms":0.17021300000000003,"head":0.8989400000000001,"waits":0.0016359999999999999}},{"rows":16,"ms":11.499614,"q1_ms":11.474042,"q3_ms":11.5683015,"ratio":15.005753268428009,"phases":{"weights":4.733769,"attention":5.3103940000000005,"norms":0.22915699999999997,"head":1.2074200000000002,"waits":0.0019280000000000002}},{"rows":24,"ms":17.625204,"q1_ms":17.4574305,"q3_ms":18.897029,"ratio":22.998986098986492,"phases":{"weights":7.284952999999999,"attention":8.124791000000002,"norms":0.34423,"head":1.844241,"waits":0.002446}},{"rows":32,"ms":26.085934,"q1_ms":25.941257,"q3_ms":27.398588,"ratio":34.039324222578024,"phases":{"weights":11.282738,"attention":12.780402000000002,"norms":0.51503,"head":2.798902,"waits":0.005946999999999998}},{"rows":48,"ms":39.051349,"q1_ms":38.234574,"q3_ms":42.4899075,"ratio":50.95778935651865,"phases":{"weights":17.060844,"attention":17.828683,"norms":0.707401,"head":3.898492,"waits":0.005458}},{"rows":64,"ms":52.985256,"q1_ms":52.7109885,"q3_ms":53.118116,"ratio":69.14003186546043,"phases":{"weights":20.888675000000003,"attention":24.188137,"norms":1.0527710000000001,"head":6.796198,"waits":0.0074919999999999995}}]}');
INSERT INTO "environment" VALUES(1,'steal_share','0.0006');
INSERT INTO "environment" VALUES(1,'version','0.1.0');
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
  UNIQUE (arm_id, prompt_id, repeat, sample)
);
INSERT INTO "generation" VALUES(1,1,1,1,0,0,-8695737631324612491,0,0,'ok','','b9a664c901406c834df6e0c0a193aa5b','a3cb753a19c8f9f95ed515bbe14d4a25',16168966,96064,26197,'2026-11-25T09:15:15Z',NULL,0,NULL);
INSERT INTO "generation" VALUES(2,1,2,1,0,0,-8695737631324612491,0,1,'ok','','b9a664c901406c834df6e0c0a193aa5b','a3cb753a19c8f9f95ed515bbe14d4a25',16543397,106505,4784,'2026-11-25T09:15:15Z',NULL,0,NULL);
INSERT INTO "generation" VALUES(3,1,4,1,0,0,-8695737631324612491,0,2,'ok','','b9a664c901406c834df6e0c0a193aa5b','676b8cf1a788f7761b2291266a776f96',99666301,70787,8290,'2026-11-25T09:15:15Z',NULL,0,NULL);
INSERT INTO "generation" VALUES(4,1,3,1,0,0,-8695737631324612491,0,3,'ok','','b9a664c901406c834df6e0c0a193aa5b','34dce356dd085e3e4fbf05d21e3ec5d7',15029911,62515,5864,'2026-11-25T09:15:16Z',NULL,0,NULL);
INSERT INTO "generation" VALUES(5,1,4,2,0,0,-1797554835396393587,1,0,'ok','','4aeec34ceabb7e9a8c0c068f8cb2f7e1','13f13f354fa8de4d1c63bc7e98e0690f',112968174,83475,7897,'2026-11-25T09:15:16Z',NULL,0,NULL);
INSERT INTO "generation" VALUES(6,1,3,2,0,0,-1797554835396393587,1,1,'ok','','4aeec34ceabb7e9a8c0c068f8cb2f7e1','a3cb753a19c8f9f95ed515bbe14d4a25',11814708,135275,4980,'2026-11-25T09:15:16Z',NULL,0,NULL);
INSERT INTO "generation" VALUES(7,1,1,2,0,0,-1797554835396393587,1,2,'ok','','4aeec34ceabb7e9a8c0c068f8cb2f7e1','a3cb753a19c8f9f95ed515bbe14d4a25',14757771,62737,5688,'2026-11-25T09:15:16Z',NULL,0,NULL);
INSERT INTO "generation" VALUES(8,1,2,2,0,0,-1797554835396393587,1,3,'ok','','4aeec34ceabb7e9a8c0c068f8cb2f7e1','a3cb753a19c8f9f95ed515bbe14d4a25',13048756,68246,4921,'2026-11-25T09:15:16Z',NULL,0,NULL);
INSERT INTO "generation" VALUES(9,1,3,3,0,0,-9107043655349282827,2,0,'ok','','c5b67184234e658ba8f3cdac9c712628','36c7548554984af838d07fc71bafc3a1',32852141,52564,7996,'2026-11-25T09:15:16Z',NULL,0,NULL);
INSERT INTO "generation" VALUES(10,1,1,3,0,0,-9107043655349282827,2,1,'ok','','c5b67184234e658ba8f3cdac9c712628','a3cb753a19c8f9f95ed515bbe14d4a25',14890863,56278,5782,'2026-11-25T09:15:16Z',NULL,0,NULL);
INSERT INTO "generation" VALUES(11,1,2,3,0,0,-9107043655349282827,2,2,'ok','','c5b67184234e658ba8f3cdac9c712628','a3cb753a19c8f9f95ed515bbe14d4a25',15747315,81817,5300,'2026-11-25T09:15:16Z',NULL,0,NULL);
INSERT INTO "generation" VALUES(12,1,4,3,0,0,-9107043655349282827,2,3,'ok','','c5b67184234e658ba8f3cdac9c712628','a3cb753a19c8f9f95ed515bbe14d4a25',139019468,75722,10398,'2026-11-25T09:15:16Z',NULL,0,NULL);
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
CREATE TABLE meta (
  name  TEXT PRIMARY KEY,
  value TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO "meta" VALUES('schema_version','8');
CREATE TABLE node (
  turn_id  INTEGER NOT NULL REFERENCES turn (id) ON DELETE CASCADE,
  depth    INTEGER NOT NULL,                -- 1 = child of the root, 64 = 64 and deeper
  rank     INTEGER NOT NULL,                -- siblings in front of it, 15 = 15 and more
  tested   INTEGER NOT NULL,
  accepted INTEGER NOT NULL,
  PRIMARY KEY (turn_id, depth, rank)
) WITHOUT ROWID;
INSERT INTO "node" VALUES(3,1,0,1,1);
INSERT INTO "node" VALUES(3,2,0,1,1);
INSERT INTO "node" VALUES(3,3,0,1,1);
INSERT INTO "node" VALUES(4,1,0,1,0);
INSERT INTO "node" VALUES(5,1,0,1,1);
INSERT INTO "node" VALUES(5,1,1,1,0);
INSERT INTO "node" VALUES(5,2,0,1,0);
INSERT INTO "node" VALUES(9,1,0,2,0);
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
  UNIQUE (run_id, key)
);
INSERT INTO "prompt" VALUES(1,1,'6d55e459c8f4d417926543fa0f176b38bf2d5f41799111ba7e1428fb427c77d4','jsonl:prompts.jsonl','p0','','','55f9f91ea1116644293cf6959f2f4769b7e129e03f4d21679b88075406e32b2f','["sat ran cat a cat then then then far and on cat then the and and"]',NULL);
INSERT INTO "prompt" VALUES(2,1,'136f568287d9f2b68ed67a01beb6ea34e10616f8cc43c4f2bd65b35c52fce7a9','jsonl:prompts.jsonl','p1','','','3c4a1d31840aa28e8bc02554474cb757e315fcdf8922acc9ccd9ad13dbdd1ab2','["ran the away then a away on ran cat mat the the the far it the"]',NULL);
INSERT INTO "prompt" VALUES(3,1,'a991ba9557c1b33be695ed05c787ef0791586257856e2e2ddf860668efba3002','jsonl:prompts.jsonl','p2','','','4cfed9d404b1040bc954a48cbccd5014646ef7e8929ae1750c65814e73c485b7','["and far on and away the it on then then it on mat on far on"]',NULL);
CREATE TABLE rendered (
  hash TEXT PRIMARY KEY,                    -- SHA-256, prompt.rendered_hash
  text TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO "rendered" VALUES('3c4a1d31840aa28e8bc02554474cb757e315fcdf8922acc9ccd9ad13dbdd1ab2','ran the away then a away on ran cat mat the the the far it the');
INSERT INTO "rendered" VALUES('4cfed9d404b1040bc954a48cbccd5014646ef7e8929ae1750c65814e73c485b7','and far on and away the it on then then it on mat on far on');
INSERT INTO "rendered" VALUES('55f9f91ea1116644293cf6959f2f4769b7e129e03f4d21679b88075406e32b2f','sat ran cat a cat then then then far and on cat then the and and');
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
INSERT INTO "run" VALUES(1,'9376b587ad6b9f88cd3957650752e3e5ed0811806f777ca14b21f1adb409b6cd','old','custom','{
  "aa": true,
  "evaluators": "auto",
  "ignore_eos": true,
  "kv_cache": true,
  "limit": -1.0,
  "max_new": 12,
  "max_turns": 0,
  "methods": [
    "ar",
    "pld:adaptive=false,candidates=1,k=10,match=first,min_ngram=1,ngram=3",
    "lookahead:adaptive=false,full_match_bonus=false,guesses=7,init=prompt,ngram=5,pool_from_prompt=false,trie=true,window=7"
  ],
  "name": "custom",
  "optional_methods": [],
  "order": "interleaved",
  "repeats": 1,
  "replay": false,
  "samples": 1,
  "seed": 1,
  "summary": "",
  "tasks": [
    {
      "limit": 0.0,
      "max_new": 0,
      "task": "jsonl:prompts.jsonl"
    }
  ],
  "temperature": 0.0,
  "top_k": 0,
  "top_p": 1.0,
  "warmup": 0,
  "warmup_limit_s": 10.0
}','b81ed7e52929','0.1.0','evalrun run -m tiny-llama --db r.db --tasks jsonl:prompts.jsonl --methods ar,pld,lookahead -n 12 -w 0 -t 1 --dtype f32 --ignore-eos --aa --isa portable --label old','2026-11-25T09:15:14Z','2026-11-25T09:15:16Z',8);
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
INSERT INTO "step" VALUES(1,0,1,0,0,0,1,1,2156,723703,306,265);
INSERT INTO "step" VALUES(1,1,1,0,0,0,1,1,194,711839,288,64);
INSERT INTO "step" VALUES(1,2,1,0,0,0,1,1,163,652420,220,65);
INSERT INTO "step" VALUES(1,3,1,0,0,0,1,1,138,677061,250,68);
INSERT INTO "step" VALUES(1,4,1,0,0,0,1,1,404,675786,242,66);
INSERT INTO "step" VALUES(1,5,1,0,0,0,1,1,142,688511,270,66);
INSERT INTO "step" VALUES(1,6,1,0,0,0,1,1,144,684393,239,65);
INSERT INTO "step" VALUES(1,7,1,0,0,0,1,1,142,716351,236,64);
INSERT INTO "step" VALUES(1,8,1,0,0,0,1,1,454,648723,232,65);
INSERT INTO "step" VALUES(1,9,1,0,0,0,1,1,138,673614,235,65);
INSERT INTO "step" VALUES(1,10,1,0,0,0,1,1,120,744692,353,205);
INSERT INTO "step" VALUES(2,0,1,0,0,0,1,1,1972,704661,301,148);
INSERT INTO "step" VALUES(2,1,1,0,0,0,1,1,218,683516,233,66);
INSERT INTO "step" VALUES(2,2,1,0,0,0,1,1,157,683591,225,65);
INSERT INTO "step" VALUES(2,3,1,0,0,0,1,1,148,748274,540,66);
INSERT INTO "step" VALUES(2,4,1,0,0,0,1,1,144,685250,208,66);
INSERT INTO "step" VALUES(2,5,1,0,0,0,1,1,145,687052,347,66);
INSERT INTO "step" VALUES(2,6,1,0,0,0,1,1,142,678242,213,64);
INSERT INTO "step" VALUES(2,7,1,0,0,0,1,1,143,690188,213,67);
INSERT INTO "step" VALUES(2,8,1,0,0,0,1,1,140,708657,222,67);
INSERT INTO "step" VALUES(2,9,1,0,0,0,1,1,143,715888,207,64);
INSERT INTO "step" VALUES(2,10,1,0,0,0,1,1,135,703820,335,200);
INSERT INTO "step" VALUES(3,0,10,0,0,0,1,1,3790,6538875,363,242);
INSERT INTO "step" VALUES(3,1,18,0,0,0,1,1,1028,10707245,254,114);
INSERT INTO "step" VALUES(3,2,24,0,0,0,1,1,737,13966729,346,126);
INSERT INTO "step" VALUES(3,3,28,0,0,0,1,1,4971,16420139,269,102);
INSERT INTO "step" VALUES(3,4,28,0,0,0,1,1,4724,13941076,785,91);
INSERT INTO "step" VALUES(3,5,28,0,0,0,1,1,8289,13170119,3164,487);
INSERT INTO "step" VALUES(3,6,32,4,4,3,4,1,5764,15556254,3992,279);
INSERT INTO "step" VALUES(3,7,1,0,0,0,1,1,774,477299,405,300);
INSERT INTO "step" VALUES(4,0,1,0,0,0,1,1,2842,525079,273,160);
INSERT INTO "step" VALUES(4,1,1,0,0,0,1,1,214,579619,356,79);
INSERT INTO "step" VALUES(4,2,1,0,0,0,1,1,164,465027,143,42);
INSERT INTO "step" VALUES(4,3,1,0,0,0,1,1,274,461530,125,44);
INSERT INTO "step" VALUES(4,4,1,0,0,0,1,1,165,467497,125,43);
INSERT INTO "step" VALUES(4,5,1,0,0,0,1,1,171,466558,127,45);
INSERT INTO "step" VALUES(4,6,5,4,4,0,1,1,1878,2395733,268,82);
INSERT INTO "step" VALUES(4,7,1,0,0,0,1,1,339,465950,156,42);
INSERT INTO "step" VALUES(4,8,1,0,0,0,1,1,194,481080,166,54);
INSERT INTO "step" VALUES(4,9,1,0,0,0,1,1,336,552129,140,59);
INSERT INTO "step" VALUES(4,10,1,0,0,0,1,1,81,502975,319,317);
INSERT INTO "step" VALUES(5,0,10,0,0,0,1,1,3205,4612873,253,145);
INSERT INTO "step" VALUES(5,1,18,0,0,0,1,1,748,8387028,874,89);
INSERT INTO "step" VALUES(5,2,24,0,0,0,1,1,1357,10019042,633,80);
INSERT INTO "step" VALUES(5,3,28,0,0,0,1,1,4195,12606193,2651,554);
INSERT INTO "step" VALUES(5,4,28,0,0,0,1,1,3343,11771137,567,270);
INSERT INTO "step" VALUES(5,5,28,0,0,0,1,1,2426,11987085,1892,494);
INSERT INTO "step" VALUES(5,6,28,0,0,0,1,1,2913,16724487,2437,546);
INSERT INTO "step" VALUES(5,7,34,6,3,1,2,1,3421,17702197,1169,553);
INSERT INTO "step" VALUES(5,8,28,0,0,0,1,1,5742,12138635,1256,471);
INSERT INTO "step" VALUES(5,9,1,0,0,0,1,1,539,1129096,2175,516);
INSERT INTO "step" VALUES(6,0,1,0,0,0,1,1,2508,473730,224,165);
INSERT INTO "step" VALUES(6,1,1,0,0,0,1,1,232,501703,247,67);
INSERT INTO "step" VALUES(6,2,1,0,0,0,1,1,235,522096,241,66);
INSERT INTO "step" VALUES(6,3,1,0,0,0,1,1,285,490411,150,43);
INSERT INTO "step" VALUES(6,4,1,0,0,0,1,1,177,573633,277,66);
INSERT INTO "step" VALUES(6,5,1,0,0,0,1,1,221,474591,171,45);
INSERT INTO "step" VALUES(6,6,1,0,0,0,1,1,110,476650,156,46);
INSERT INTO "step" VALUES(6,7,1,0,0,0,1,1,200,514566,194,66);
INSERT INTO "step" VALUES(6,8,1,0,0,0,1,1,188,529344,183,66);
INSERT INTO "step" VALUES(6,9,1,0,0,0,1,1,325,495051,143,56);
INSERT INTO "step" VALUES(6,10,1,0,0,0,1,1,76,474388,264,44);
INSERT INTO "step" VALUES(7,0,1,0,0,0,1,1,1093,764677,444,175);
INSERT INTO "step" VALUES(7,1,1,0,0,0,1,1,140,722205,631,63);
INSERT INTO "step" VALUES(7,2,1,0,0,0,1,1,142,687467,232,66);
INSERT INTO "step" VALUES(7,3,1,0,0,0,1,1,165,701878,246,63);
INSERT INTO "step" VALUES(7,4,1,0,0,0,1,1,139,684088,273,66);
INSERT INTO "step" VALUES(7,5,1,0,0,0,1,1,139,687249,537,65);
INSERT INTO "step" VALUES(7,6,1,0,0,0,1,1,139,702069,717,66);
INSERT INTO "step" VALUES(7,7,1,0,0,0,1,1,140,706173,361,65);
INSERT INTO "step" VALUES(7,8,1,0,0,0,1,1,143,703092,296,66);
INSERT INTO "step" VALUES(7,9,1,0,0,0,1,1,140,687318,242,65);
INSERT INTO "step" VALUES(7,10,1,0,0,0,1,1,125,702028,291,66);
INSERT INTO "step" VALUES(8,0,1,0,0,0,1,1,778,477731,207,126);
INSERT INTO "step" VALUES(8,1,1,0,0,0,1,1,89,479723,147,44);
INSERT INTO "step" VALUES(8,2,1,0,0,0,1,1,90,511002,142,51);
INSERT INTO "step" VALUES(8,3,1,0,0,0,1,1,98,558318,130,44);
INSERT INTO "step" VALUES(8,4,1,0,0,0,1,1,66,532726,192,64);
INSERT INTO "step" VALUES(8,5,1,0,0,0,1,1,167,891962,1726,326);
INSERT INTO "step" VALUES(8,6,1,0,0,0,1,1,562,481422,136,61);
INSERT INTO "step" VALUES(8,7,1,0,0,0,1,1,63,747472,929,109);
INSERT INTO "step" VALUES(8,8,1,0,0,0,1,1,336,607715,201,82);
INSERT INTO "step" VALUES(8,9,1,0,0,0,1,1,215,749080,215,67);
INSERT INTO "step" VALUES(8,10,1,0,0,0,1,1,236,545195,193,65);
INSERT INTO "step" VALUES(9,0,1,0,0,0,1,1,2401,470023,201,119);
INSERT INTO "step" VALUES(9,1,1,0,0,0,1,1,222,470708,129,45);
INSERT INTO "step" VALUES(9,2,1,0,0,0,1,1,252,1242356,1960,136);
INSERT INTO "step" VALUES(9,3,8,7,7,0,1,1,2799,14965126,2762,250);
INSERT INTO "step" VALUES(9,4,1,0,0,0,1,1,1786,2149922,1689,287);
INSERT INTO "step" VALUES(9,5,1,0,0,0,1,1,1543,4284199,2929,262);
INSERT INTO "step" VALUES(9,6,1,0,0,0,1,1,1640,487596,218,135);
INSERT INTO "step" VALUES(9,7,1,0,0,0,1,1,199,477745,144,45);
INSERT INTO "step" VALUES(9,8,3,2,2,0,1,1,1593,1570292,399,145);
INSERT INTO "step" VALUES(9,9,1,0,0,0,1,1,377,605793,227,85);
INSERT INTO "step" VALUES(9,10,1,0,0,0,1,1,118,477715,146,42);
INSERT INTO "step" VALUES(10,0,1,0,0,0,1,1,1400,689492,263,132);
INSERT INTO "step" VALUES(10,1,1,0,0,0,1,1,139,692178,250,65);
INSERT INTO "step" VALUES(10,2,1,0,0,0,1,1,139,740026,606,64);
INSERT INTO "step" VALUES(10,3,1,0,0,0,1,1,140,683035,247,65);
INSERT INTO "step" VALUES(10,4,1,0,0,0,1,1,142,681216,267,67);
INSERT INTO "step" VALUES(10,5,1,0,0,0,1,1,140,679933,231,65);
INSERT INTO "step" VALUES(10,6,1,0,0,0,1,1,139,693817,508,65);
INSERT INTO "step" VALUES(10,7,1,0,0,0,1,1,141,690776,230,66);
INSERT INTO "step" VALUES(10,8,1,0,0,0,1,1,139,736495,545,65);
INSERT INTO "step" VALUES(10,9,1,0,0,0,1,1,447,682551,221,67);
INSERT INTO "step" VALUES(10,10,1,0,0,0,1,1,124,766076,251,67);
INSERT INTO "step" VALUES(11,0,1,0,0,0,1,1,945,689375,258,144);
INSERT INTO "step" VALUES(11,1,1,0,0,0,1,1,169,777382,243,64);
INSERT INTO "step" VALUES(11,2,1,0,0,0,1,1,169,701866,233,65);
INSERT INTO "step" VALUES(11,3,1,0,0,0,1,1,139,710519,249,66);
INSERT INTO "step" VALUES(11,4,1,0,0,0,1,1,247,685802,220,66);
INSERT INTO "step" VALUES(11,5,1,0,0,0,1,1,140,704141,224,66);
INSERT INTO "step" VALUES(11,6,1,0,0,0,1,1,141,686033,232,65);
INSERT INTO "step" VALUES(11,7,1,0,0,0,1,1,139,723682,261,67);
INSERT INTO "step" VALUES(11,8,1,0,0,0,1,1,141,705690,232,64);
INSERT INTO "step" VALUES(11,9,1,0,0,0,1,1,139,682959,222,66);
INSERT INTO "step" VALUES(11,10,1,0,0,0,1,1,121,699210,253,64);
INSERT INTO "step" VALUES(12,0,10,0,0,0,1,1,3109,6319415,275,139);
INSERT INTO "step" VALUES(12,1,18,0,0,0,1,1,482,8149008,252,66);
INSERT INTO "step" VALUES(12,2,24,0,0,0,1,1,2675,12816812,2478,740);
INSERT INTO "step" VALUES(12,3,28,0,0,0,1,1,4472,13950264,2511,520);
INSERT INTO "step" VALUES(12,4,28,0,0,0,1,1,3716,12473825,1957,565);
INSERT INTO "step" VALUES(12,5,28,0,0,0,1,1,3790,27842147,2831,494);
INSERT INTO "step" VALUES(12,6,28,0,0,0,1,1,2375,11992605,785,433);
INSERT INTO "step" VALUES(12,7,28,0,0,0,1,1,1441,12388947,484,125);
INSERT INTO "step" VALUES(12,8,28,0,0,0,1,1,815,12165614,929,97);
INSERT INTO "step" VALUES(12,9,28,0,0,0,1,1,860,12241604,1037,95);
INSERT INTO "step" VALUES(12,10,1,0,0,0,1,1,284,636822,270,66);
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
INSERT INTO "turn" VALUES(1,1,0,22,12,11,0,0,0,11,11,11,11,4195,7597093,2871,1058,8402900,26844,7609030,'limit',X'3901000054000000460000000E000000E60100006301000005010000D1010000FE010000330100003D01000010000000',' hard, like a plate of stone.');
INSERT INTO "turn" VALUES(2,2,0,22,12,11,0,0,0,11,11,11,11,3487,7689139,3044,939,8718045,6504,7701175,'limit',X'3901000054000000460000000E000000E60100006301000005010000D1010000FE010000330100003D01000010000000',' hard, like a plate of stone.');
INSERT INTO "turn" VALUES(3,3,0,22,12,8,4,4,3,11,8,169,7,30077,90777736,9578,1741,8722445,8032,90845871,'limit',X'3901000054000000460000000E000000E60100006301000005010000D1010000FE010000330100003D01000010000000',' hard, like a plate of stone.');
INSERT INTO "turn" VALUES(4,4,0,22,12,11,4,4,0,11,11,15,10,6658,7363177,2198,967,7567541,7803,7376536,'limit',X'3901000054000000460000000E000000E60100006301000005010000D1010000FE010000330100003D01000010000000',' hard, like a plate of stone.');
INSERT INTO "turn" VALUES(5,5,0,21,12,10,6,3,1,11,10,227,9,27889,107077773,13907,3718,5732977,4864,107128540,'limit',X'5F010000D9010000C3010000080100004E0000002B010000090100001000000043010000A40100001701000057000000',' yeast works slower. The stick mu');
INSERT INTO "turn" VALUES(6,6,0,21,12,11,0,0,0,11,11,11,11,4557,5526163,2250,730,6126102,4267,5537657,'limit',X'5F010000D9010000C3010000080100004E0000002B010000090100001000000043010000A40100001701000057000000',' yeast works slower. The stick mu');
INSERT INTO "turn" VALUES(7,7,0,21,12,11,0,0,0,11,11,11,11,2505,7748244,4270,826,6872800,3688,7759667,'limit',X'5F010000D9010000C3010000080100004E0000002B010000090100001000000043010000A40100001701000057000000',' yeast works slower. The stick mu');
INSERT INTO "turn" VALUES(8,8,0,21,12,11,0,0,0,11,11,11,11,2700,6582346,4218,1039,6371510,3403,6593743,'limit',X'5F010000D9010000C3010000080100004E0000002B010000090100001000000043010000A40100001701000057000000',' yeast works slower. The stick mu');
INSERT INTO "turn" VALUES(9,9,0,20,12,11,9,9,0,11,11,20,9,12930,27201475,10804,1551,5549480,3010,27230808,'limit',X'D20100005B00000078010000060100003D010000E4010000BE010000FB0100003A01000047010000100000004F010000',' every day the stone stayed where it was. A');
INSERT INTO "turn" VALUES(10,10,0,20,12,11,0,0,0,11,11,11,11,3090,7735595,3619,788,7070553,4212,7747235,'limit',X'D20100005B00000078010000060100003D010000E4010000BE010000FB0100003A01000047010000100000004F010000',' every day the stone stayed where it was. A');
INSERT INTO "turn" VALUES(11,11,0,20,12,11,0,0,0,11,11,11,11,2490,7766659,2627,797,7875253,3018,7776213,'limit',X'D20100005B00000078010000060100003D010000E4010000BE010000FB0100003A01000047010000100000004F010000',' every day the stone stayed where it was. A');
INSERT INTO "turn" VALUES(12,12,0,20,12,11,0,0,0,11,11,249,11,24019,130977063,13809,3340,7892307,5360,131023456,'limit',X'D20100005B00000078010000060100003D010000E4010000BE010000FB0100003A01000047010000100000004F010000',' every day the stone stayed where it was. A');
CREATE INDEX run_label ON run (label);
CREATE INDEX generation_run ON generation (run_id);
CREATE INDEX generation_prompt ON generation (prompt_id);
CREATE VIEW v_generation_all AS
SELECT g.run_id, g.id AS generation_id, g.arm_id, g.prompt_id, p.task, g.repeat, g.sample, g.seed,
       g.fault, g.status = 'ok' AS ok, g.status, g.tokens_hash, g.steps_hash,
       -- An answer that runs in a loop (results/repetition.h): every drafter predicts it.
       coalesce(g.distinct_share < 0.3, 0) OR g.cycle >= 32 AS degenerate,
       g.asked, count(t.id) AS n_turns,
       coalesce(sum(t.n_tokens), 0) AS n_tokens,
       coalesce(sum(max(t.n_tokens - 1, 0)), 0) AS n_decode,
       coalesce(sum(t.n_steps), 0) AS steps,
       coalesce(sum(t.drafted), 0) AS drafted,
       coalesce(sum(t.drafted_depth), 0) AS drafted_depth,
       coalesce(sum(t.accepted), 0) AS accepted,
       coalesce(sum(t.emitted), 0) AS emitted,
       coalesce(sum(t.target_forwards), 0) AS target_forwards,
       coalesce(sum(t.rows), 0) AS rows,
       coalesce(sum(t.undrafted), 0) AS undrafted,
       coalesce(sum(t.draft_ns), 0) AS draft_ns,
       coalesce(sum(t.verify_ns), 0) AS verify_ns,
       coalesce(sum(t.commit_ns), 0) AS commit_ns,
       coalesce(sum(t.other_ns), 0) AS other_ns,
       coalesce(sum(t.prefill_ns), 0) AS prefill_ns,
       coalesce(sum(t.draft_prefill_ns), 0) AS draft_prefill_ns,
       coalesce(sum(t.decode_ns), 0) AS decode_ns,
       g.total_ns
FROM generation g
JOIN prompt p ON p.id = g.prompt_id
LEFT JOIN turn t ON t.generation_id = g.id
GROUP BY g.run_id, g.id;
CREATE VIEW v_generation AS
SELECT * FROM v_generation_all WHERE ok AND fault = '';
CREATE VIEW v_sample AS
SELECT run_id, arm_id, prompt_id, task, sample, fault,
       max(n_repeats) AS n_repeats,
       max(first_hash) = max(last_hash) AND max(first_steps) = max(last_steps) AS stable,
       min(tokens_hash) AS tokens_hash, min(steps_hash) AS steps_hash,
       max(degenerate) AS degenerate,
       avg(n_tokens) AS n_tokens, avg(n_decode) AS n_decode, avg(steps) AS steps,
       avg(drafted) AS drafted, avg(drafted_depth) AS drafted_depth, avg(accepted) AS accepted,
       avg(emitted) AS emitted, avg(target_forwards) AS target_forwards,
       avg(rows) AS rows, avg(undrafted) AS undrafted,
       avg(draft_ns) AS draft_ns, avg(verify_ns) AS verify_ns, avg(commit_ns) AS commit_ns,
       avg(other_ns) AS other_ns, avg(prefill_ns) AS prefill_ns,
       avg(draft_prefill_ns) AS draft_prefill_ns, avg(decode_ns) AS decode_ns,
       min(fastest_ns) AS fastest_ns, avg(total_ns) AS total_ns
FROM (SELECT *,
             row_number() OVER by_time AS place,
             count(*) OVER cell AS n_repeats, min(decode_ns) OVER cell AS fastest_ns,
             min(tokens_hash) OVER cell AS first_hash, max(tokens_hash) OVER cell AS last_hash,
             min(steps_hash) OVER cell AS first_steps, max(steps_hash) OVER cell AS last_steps
      FROM v_generation_all
      WHERE ok
      WINDOW cell AS (PARTITION BY run_id, arm_id, prompt_id, task, sample, fault),
             by_time AS (PARTITION BY run_id, arm_id, prompt_id, task, sample, fault
                         ORDER BY decode_ns, repeat))
WHERE place IN ((n_repeats + 1) / 2, (n_repeats + 2) / 2)
GROUP BY run_id, arm_id, prompt_id, task, sample, fault;
CREATE VIEW v_arm_prompt AS
SELECT run_id, arm_id, prompt_id, task, fault, count(*) AS n_samples,
       sum(n_tokens) AS n_tokens, sum(n_decode) AS n_decode, sum(steps) AS steps,
       sum(drafted) AS drafted, sum(drafted_depth) AS drafted_depth, sum(accepted) AS accepted,
       sum(emitted) AS emitted, sum(target_forwards) AS target_forwards,
       sum(rows) AS rows, sum(undrafted) AS undrafted,
       sum(draft_ns) AS draft_ns, sum(verify_ns) AS verify_ns, sum(commit_ns) AS commit_ns,
       sum(other_ns) AS other_ns, sum(prefill_ns) AS prefill_ns,
       sum(draft_prefill_ns) AS draft_prefill_ns, sum(decode_ns) AS decode_ns,
       sum(total_ns) AS total_ns
FROM v_sample
GROUP BY run_id, arm_id, prompt_id, task, fault;
CREATE VIEW v_arm_totals AS
SELECT run_id, arm_id, task, fault, count(*) AS n_prompts, max(n_samples) AS samples,
       sum(n_tokens) AS n_tokens, sum(n_decode) AS n_decode, sum(steps) AS steps,
       sum(drafted) AS drafted, sum(drafted_depth) AS drafted_depth, sum(accepted) AS accepted,
       sum(emitted) AS emitted, sum(target_forwards) AS target_forwards,
       sum(rows) AS rows, sum(undrafted) AS undrafted,
       sum(draft_ns) AS draft_ns, sum(verify_ns) AS verify_ns, sum(commit_ns) AS commit_ns,
       sum(other_ns) AS other_ns, sum(prefill_ns) AS prefill_ns,
       sum(draft_prefill_ns) AS draft_prefill_ns, sum(decode_ns) AS decode_ns,
       sum(total_ns) AS total_ns
FROM v_arm_prompt
GROUP BY run_id, arm_id, task, fault;
CREATE VIEW v_count AS
SELECT g.run_id, g.arm_id, p.task, g.fault, count(*) AS generations,
       sum(g.status <> 'ok') AS failed
FROM generation g JOIN prompt p ON p.id = g.prompt_id
GROUP BY g.run_id, g.arm_id, p.task, g.fault;
CREATE VIEW v_acceptance AS
SELECT run_id, arm_id, task, fault, steps, drafted, drafted_depth, accepted, emitted,
       1.0 * emitted / nullif(steps, 0) AS tau,
       1.0 * accepted / nullif(steps, 0) AS accepted_per_step,
       1.0 * emitted / nullif(target_forwards, 0) AS de,
       1.0 * accepted / nullif(drafted, 0) AS alpha_draft,
       1.0 * accepted / nullif(drafted_depth, 0) AS alpha_draft_depth,
       1.0 * accepted / nullif(emitted, 0) AS alpha_share,
       1.0 * undrafted / nullif(steps, 0) AS no_draft,
       1.0 * rows / nullif(steps, 0) AS rows_per_step
FROM v_arm_totals;
CREATE VIEW v_reference AS
SELECT a.run_id, a.id AS arm_id,
       CASE
         WHEN a.method = 'ar_tuned' THEN a.id
         WHEN a.model_hash = b.model_hash THEN b.id
         ELSE coalesce((SELECT min(t.id) FROM arm t
                        WHERE t.run_id = a.run_id AND t.method = 'ar_tuned'
                          AND t.model_hash = a.model_hash), b.id)
       END AS reference_id
FROM arm a
LEFT JOIN arm b ON b.run_id = a.run_id AND b.role = 'baseline';
CREATE VIEW v_pair AS
SELECT m.run_id, m.arm_id, m.prompt_id, m.task, m.sample, m.fault,
       m.n_decode, m.decode_ns, m.steps, m.emitted, m.draft_ns, m.verify_ns,
       b.n_decode AS base_n_decode, b.decode_ns AS base_decode_ns, b.steps AS base_steps,
       b.verify_ns AS base_verify_ns, m.degenerate OR b.degenerate AS degenerate
FROM v_sample m
JOIN v_reference r ON r.arm_id = m.arm_id
JOIN v_sample b ON b.run_id = m.run_id AND b.arm_id = r.reference_id AND b.prompt_id = m.prompt_id
               AND b.sample = m.sample AND b.fault = '';
CREATE VIEW v_degenerate AS
SELECT run_id, arm_id, task, fault, count(*) AS cells, sum(degenerate) AS degenerate
FROM v_pair
GROUP BY run_id, arm_id, task, fault;
CREATE VIEW v_divergence AS
SELECT g.run_id, g.arm_id, p.task, g.fault, sum(g.asked) AS asked,
       coalesce(sum(d.n), 0) AS differing, coalesce(sum(d.near_ties), 0) AS near_ties,
       1.0 * coalesce(sum(d.n), 0) / nullif(sum(g.asked), 0) AS rate, max(d.gap) AS largest_gap
FROM generation g
JOIN prompt p ON p.id = g.prompt_id
LEFT JOIN (SELECT t.generation_id, count(*) AS n, sum(coalesce(x.gap <= 2 * x.spacing, 0)) AS near_ties,
                  max(x.gap) AS gap
           FROM divergence x JOIN turn t ON t.id = x.turn_id
           GROUP BY t.generation_id) d ON d.generation_id = g.id
WHERE g.status = 'ok' AND g.asked IS NOT NULL
GROUP BY g.run_id, g.arm_id, p.task, g.fault;
CREATE VIEW v_clock AS
SELECT g.run_id, g.arm_id, g.id AS generation_id, g.fault, c.device_mhz, c.available_ns, c.own_ns,
       c.others_ns, c.steal_ns, c.preempted,
       1.0 * c.others_ns / nullif(c.available_ns, 0) AS others_share,
       1.0 * c.steal_ns / nullif(c.available_ns, 0) AS steal_share,
       c.others_ns + c.steal_ns > max(0.1 * c.available_ns, 50000000) AS disturbed
FROM generation g
JOIN clock c ON c.generation_id = g.id
WHERE g.status = 'ok';
CREATE VIEW v_gpu AS
SELECT g.run_id, g.arm_id, g.prompt_id, p.task, g.id AS generation_id, g.fault,
       sum(t.n_tokens) AS n_tokens, sum(t.n_steps) AS steps, sum(t.decode_ns) AS decode_ns,
       u.draft_ns, u.verify_ns, u.commit_ns, u.graph_misses, u.energy_mj, u.slowed_by,
       1.0 * (u.draft_ns + u.verify_ns + u.commit_ns) / nullif(sum(t.decode_ns), 0) AS busy_share,
       0.001 * u.energy_mj / nullif(sum(t.n_tokens), 0) AS joules_per_token
FROM generation g
JOIN gpu u ON u.generation_id = g.id
JOIN prompt p ON p.id = g.prompt_id
JOIN turn t ON t.generation_id = g.id
WHERE g.status = 'ok'
GROUP BY g.run_id, g.id;
CREATE VIEW v_speed AS
SELECT *, speedup * (t_ratio + draft_share + overhead) / tau - 1 AS residual
FROM (SELECT run_id, arm_id, task, fault, count(DISTINCT prompt_id) AS n_prompts,
             1e9 * sum(n_decode) / nullif(sum(decode_ns), 0) AS tok_s,
             1e9 * sum(base_n_decode) / nullif(sum(base_decode_ns), 0) AS base_tok_s,
             (1.0 * sum(n_decode) / nullif(sum(decode_ns), 0)) /
                 nullif(1.0 * sum(base_n_decode) / nullif(sum(base_decode_ns), 0), 0) AS speedup,
             1.0 * sum(emitted) / nullif(sum(steps), 0) AS tau,
             (1.0 * sum(verify_ns) / nullif(sum(steps), 0)) /
                 nullif(1.0 * sum(base_verify_ns) / nullif(sum(base_steps), 0), 0) AS t_ratio,
             (1.0 * sum(draft_ns) / nullif(sum(steps), 0)) /
                 nullif(1.0 * sum(base_decode_ns) / nullif(sum(base_steps), 0), 0) AS draft_share,
             (1.0 * sum(decode_ns - draft_ns - verify_ns) / nullif(sum(steps), 0)) /
                 nullif(1.0 * sum(base_decode_ns) / nullif(sum(base_steps), 0), 0) AS overhead
      FROM v_pair
      GROUP BY run_id, arm_id, task, fault);
CREATE VIEW v_identity AS
SELECT g.run_id, g.arm_id, p.task, g.fault, count(*) AS compared,
       sum(g.tokens_hash = b.tokens_hash) AS identical,
       1.0 * sum(g.tokens_hash = b.tokens_hash) / count(*) AS identical_share
FROM generation g
JOIN prompt p ON p.id = g.prompt_id
JOIN v_reference r ON r.arm_id = g.arm_id
JOIN generation b ON b.arm_id = r.reference_id AND b.prompt_id = g.prompt_id AND b.repeat = g.repeat
                 AND b.sample = g.sample AND b.status = 'ok' AND b.fault = ''
WHERE g.status = 'ok'
GROUP BY g.run_id, g.arm_id, p.task, g.fault;
CREATE VIEW v_answer AS
SELECT g.*
FROM generation g
WHERE g.status = 'ok'
  AND NOT EXISTS (SELECT 1 FROM generation e
                  WHERE e.arm_id = g.arm_id AND e.prompt_id = g.prompt_id AND e.sample = g.sample
                    AND e.repeat < g.repeat AND e.status = 'ok' AND e.fault = g.fault);
CREATE VIEW v_score AS
SELECT g.run_id, g.arm_id, p.task, g.fault, g.prompt_id, g.sample, g.id AS generation_id,
       s.evaluator, s.version, s.value, s.status, s.suspicious,
       coalesce(json_extract(s.facts, '$.sandbox'), '') = 'none' AS unsandboxed
FROM v_answer g
JOIN score s ON s.generation_id = g.id
JOIN prompt p ON p.id = g.prompt_id;
CREATE VIEW v_quality_sample AS
SELECT run_id, arm_id, task, fault, sample, evaluator, version,
       avg(value) AS value, count(value) AS n, count(*) - count(value) AS unscored
FROM v_score
GROUP BY run_id, arm_id, task, fault, sample, evaluator, version;
CREATE VIEW v_quality AS
SELECT run_id, arm_id, task, fault, evaluator, version,
       sum(value * n) / nullif(sum(n), 0) AS value, sum(n) AS n, sum(unscored) AS unscored
FROM v_quality_sample
GROUP BY run_id, arm_id, task, fault, evaluator, version;
CREATE VIEW v_pass_count AS
SELECT run_id, arm_id, task, fault, prompt_id, version,
       count(value) AS n, CAST(sum(value) AS INTEGER) AS c, count(*) - count(value) AS unscored
FROM v_score
WHERE evaluator = 'pass'
GROUP BY run_id, arm_id, task, fault, prompt_id, version;
CREATE VIEW v_pass_at_k AS
WITH RECURSIVE miss (n, c, k, share) AS (
  SELECT n, c, 1, (n - c) * 1.0 / n FROM (SELECT DISTINCT n, c FROM v_pass_count WHERE n > 0)
  UNION ALL
  SELECT n, c, k + 1, share * max(n - c - k, 0) / (n - k) FROM miss WHERE k < n AND k < 100
),
cell AS (
  SELECT run_id, arm_id, task, fault, version, min(n) AS least
  FROM v_pass_count
  GROUP BY run_id, arm_id, task, fault, version
  HAVING sum(unscored) = 0
)
SELECT p.run_id, p.arm_id, p.task, p.fault, p.version, m.k,
       avg(1 - m.share) AS value, count(*) AS problems, c.least AS least_samples
FROM v_pass_count p
JOIN cell c ON c.run_id = p.run_id AND c.arm_id = p.arm_id AND c.task = p.task
           AND c.fault = p.fault AND c.version = p.version
JOIN miss m ON m.n = p.n AND m.c = p.c AND m.k <= c.least
GROUP BY p.run_id, p.arm_id, p.task, p.fault, p.version, m.k;
CREATE VIEW v_acceptance_histogram AS
SELECT g.run_id, g.arm_id, p.task, g.fault, s.drafted_depth, s.accepted,
       s.emitted <= s.accepted AS cut, count(*) AS steps
FROM generation g
JOIN prompt p ON p.id = g.prompt_id
JOIN turn t ON t.generation_id = g.id
JOIN step s ON s.turn_id = t.id
WHERE g.status = 'ok'
GROUP BY g.run_id, g.arm_id, p.task, g.fault, s.drafted_depth, s.accepted, cut;
CREATE VIEW v_node_acceptance AS
SELECT g.run_id, g.arm_id, p.task, g.fault, n.depth, n.rank,
       sum(n.tested) AS tested, sum(n.accepted) AS accepted,
       1.0 * sum(n.accepted) / nullif(sum(n.tested), 0) AS share
FROM generation g
JOIN prompt p ON p.id = g.prompt_id
JOIN turn t ON t.generation_id = g.id
JOIN node n ON n.turn_id = t.id
WHERE g.status = 'ok'
GROUP BY g.run_id, g.arm_id, p.task, g.fault, n.depth, n.rank;
CREATE VIEW v_accounting AS
SELECT g.run_id, g.arm_id, g.id AS generation_id, t.idx AS turn, g.fault,
       CASE
         WHEN t.emitted <> max(t.n_tokens - 1, 0) THEN 'steps emitted another number of tokens'
         WHEN length(t.tokens) <> 4 * t.n_tokens THEN 'token blob of another length'
         WHEN coalesce(sum(s.emitted), 0) <> t.emitted OR coalesce(sum(s.accepted), 0) <> t.accepted
           OR coalesce(sum(s.drafted), 0) <> t.drafted OR count(s.idx) <> t.n_steps
           OR coalesce(sum(s.rows), 0) <> t.rows OR coalesce(sum(s.drafted = 0), 0) <> t.undrafted
           THEN 'counters differ from the steps'
         WHEN sum(s.accepted > s.drafted_depth) > 0 THEN 'accepted more than was drafted'
         WHEN sum(s.emitted <> s.accepted + 1 AND s.idx < t.n_steps - 1) > 0
           THEN 'a step emitted other than accepted + 1'
         WHEN sum(s.idx = t.n_steps - 1 AND s.emitted NOT IN (s.accepted, s.accepted + 1)) > 0
           THEN 'the last step emitted other than accepted or accepted + 1'
       END AS problem
FROM generation g
JOIN turn t ON t.generation_id = g.id
LEFT JOIN step s ON s.turn_id = t.id
WHERE g.status = 'ok'
GROUP BY g.run_id, g.id, t.id
HAVING problem IS NOT NULL;
COMMIT;
