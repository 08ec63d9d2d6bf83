-- Every published metric, as a view (docs/schema.md). `fault` is a grouping column throughout: rows of
-- planted faults never mix with real ones; real measurements are those with fault = ''.

-- One row per generation, sums over its turns. n_decode = tokens that came from steps if the
-- accounting holds: each turn's first token is the prefill's.
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
       -- The first turn's prompt is the same for every arm. Later ones hold its own answers.
       coalesce(sum(CASE WHEN t.idx = 0 THEN t.prefill_ns END), 0) AS first_token_ns,
       coalesce(sum(t.decode_ns), 0) AS decode_ns,
       g.total_ns
FROM generation g
JOIN prompt p ON p.id = g.prompt_id
LEFT JOIN turn t ON t.generation_id = g.id
GROUP BY g.run_id, g.id;

-- The ordinary ones: finished, no planted fault.
CREATE VIEW v_generation AS
SELECT * FROM v_generation_all WHERE ok AND fault = '';

-- One row per (arm, prompt, sample): the repeat of median decode time; for an even number of repeats
-- the mean of the middle two. Counters are those of the same repeats (equal anyway when `stable`).
-- fastest_ns is the decode time of the least disturbed repeat.
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
       avg(draft_prefill_ns) AS draft_prefill_ns, avg(first_token_ns) AS first_token_ns,
       avg(decode_ns) AS decode_ns,
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

-- One row per (arm, prompt): sums over samples. The prompt is the unit of every interval.
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

-- One row per (arm, task): the pooled totals every ratio is made of.
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

-- How many generations each (arm, task) has, failures counted and never averaged.
CREATE VIEW v_count AS
SELECT g.run_id, g.arm_id, p.task, g.fault, count(*) AS generations,
       sum(g.status <> 'ok') AS failed
FROM generation g JOIN prompt p ON p.id = g.prompt_id
GROUP BY g.run_id, g.arm_id, p.task, g.fault;

-- Acceptance ratios of one arm on one task (pooled: sum over sum). An arm that never drafts, such as
-- plain decoding, has no_draft 1.
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

-- The arm that speed and tokens of an arm are compared with: the baseline arm of its batch, or where an
-- arm decodes another model (a tuned target), the first plain decoding of that model at that batch
-- (ar_tuned), which is its own. Where the run has none of that batch, the first baseline. Quality is
-- compared with the first baseline arm always. RunData::reference (reports/data/run_data.cpp) says the same.
CREATE VIEW v_reference AS
SELECT a.run_id, a.id AS arm_id,
       CASE
         WHEN a.method = 'ar_tuned' THEN a.id
         WHEN a.model_hash = b.model_hash THEN b.id
         ELSE coalesce((SELECT min(t.id) FROM arm t
                        WHERE t.run_id = a.run_id AND t.method = 'ar_tuned'
                          AND t.model_hash = a.model_hash AND t.batch = a.batch), b.id)
       END AS reference_id
FROM arm a
LEFT JOIN arm b ON b.id = coalesce(
  (SELECT min(c.id) FROM arm c WHERE c.run_id = a.run_id AND c.role = 'baseline' AND c.batch = a.batch),
  (SELECT min(c.id) FROM arm c WHERE c.run_id = a.run_id AND c.role = 'baseline'));

-- Pairs of one arm and its reference arm, over the same prompts and samples: what one arm lacks is left
-- out of both.
CREATE VIEW v_pair AS
SELECT m.run_id, m.arm_id, m.prompt_id, m.task, m.sample, m.fault,
       m.n_decode, m.decode_ns, m.steps, m.emitted, m.draft_ns, m.verify_ns,
       b.n_decode AS base_n_decode, b.decode_ns AS base_decode_ns, b.steps AS base_steps,
       b.verify_ns AS base_verify_ns, m.degenerate OR b.degenerate AS degenerate
FROM v_sample m
JOIN v_reference r ON r.arm_id = m.arm_id
JOIN v_sample b ON b.run_id = m.run_id AND b.arm_id = r.reference_id AND b.prompt_id = m.prompt_id
               AND b.sample = m.sample AND b.fault = '';

-- Cells (prompt, sample) whose answer runs in a loop in the arm or in its reference arm.
CREATE VIEW v_degenerate AS
SELECT run_id, arm_id, task, fault, count(*) AS cells, sum(degenerate) AS degenerate
FROM v_pair
GROUP BY run_id, arm_id, task, fault;

-- Arms that were led along their reference arm's text (replay): places asked, and at how many of them
-- the arm would have gone on otherwise; near ties are those whose logits plain decoding has within two
-- spacings of the number format. Over all finished generations, every timing repeat.
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

-- What the machine did while each finished generation ran; shares of the processor time of the cores in
-- use. `disturbed`: others had more than a tenth of it, and more than the kernel's counting can be off.
CREATE VIEW v_clock AS
SELECT g.run_id, g.arm_id, g.id AS generation_id, g.fault, c.device_mhz, c.available_ns, c.own_ns,
       c.others_ns, c.steal_ns, c.preempted, c.energy_mj,
       1.0 * c.others_ns / nullif(c.available_ns, 0) AS others_share,
       1.0 * c.steal_ns / nullif(c.available_ns, 0) AS steal_share,
       c.others_ns + c.steal_ns > max(0.1 * c.available_ns, 50000000) AS disturbed
FROM generation g
JOIN clock c ON c.generation_id = g.id
WHERE g.status = 'ok';

-- What the GPU did while each finished generation ran. busy_share: of the wall time of decoding.
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

-- Energy of each finished generation that has it, prompts included: of the GPU's board, or of the
-- processor and its memory.
CREATE VIEW v_energy AS
SELECT g.run_id, g.arm_id, g.prompt_id, p.task, g.id AS generation_id, g.fault,
       (SELECT sum(t.n_tokens) FROM turn t WHERE t.generation_id = g.id) AS n_tokens,
       CASE WHEN u.generation_id IS NULL THEN c.energy_mj ELSE u.energy_mj END AS energy_mj
FROM generation g
JOIN prompt p ON p.id = g.prompt_id
LEFT JOIN gpu u ON u.generation_id = g.id
LEFT JOIN clock c ON c.generation_id = g.id
WHERE g.status = 'ok';

-- Speed of each arm against its reference arm: ratio of sums, and the "why" columns.
-- docs/measurement.md states the identity they fulfil.
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

-- The same machine by machine, for runs of several: NULL = the run's only machine, or not known. Times
-- of machines have no common clock, so v_speed adds up what is not equal there; this view does not.
CREATE VIEW v_machine_speed AS
SELECT v.run_id, v.arm_id, m.machine_id, v.task, v.fault, count(DISTINCT v.prompt_id) AS n_prompts,
       1e9 * sum(v.n_decode) / nullif(sum(v.decode_ns), 0) AS tok_s,
       1e9 * sum(v.base_n_decode) / nullif(sum(v.base_decode_ns), 0) AS base_tok_s,
       (1.0 * sum(v.n_decode) / nullif(sum(v.decode_ns), 0)) /
           nullif(1.0 * sum(v.base_n_decode) / nullif(sum(v.base_decode_ns), 0), 0) AS speedup
FROM v_pair v
JOIN (SELECT run_id, prompt_id, max(machine_id) AS machine_id FROM generation GROUP BY run_id, prompt_id) m
  ON m.run_id = v.run_id AND m.prompt_id = v.prompt_id
GROUP BY v.run_id, v.arm_id, m.machine_id, v.task, v.fault;

-- Share of generations whose token ids equal those of the reference arm for the same prompt, repeat and
-- sample.
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

-- Answers that are judged: timing repeats say the same thing again, so the first finished one.
CREATE VIEW v_answer AS
SELECT g.*
FROM generation g
WHERE g.status = 'ok'
  AND NOT EXISTS (SELECT 1 FROM generation e
                  WHERE e.arm_id = g.arm_id AND e.prompt_id = g.prompt_id AND e.sample = g.sample
                    AND e.repeat < g.repeat AND e.status = 'ok' AND e.fault = g.fault);

-- Their scores.
CREATE VIEW v_score AS
SELECT g.run_id, g.arm_id, p.task, g.fault, g.prompt_id, g.sample, g.id AS generation_id,
       s.evaluator, s.version, s.value, s.status, s.suspicious,
       coalesce(json_extract(s.facts, '$.sandbox'), '') = 'none' AS unsandboxed
FROM v_answer g
JOIN score s ON s.generation_id = g.id
JOIN prompt p ON p.id = g.prompt_id;

-- Mean score per evaluator and sample index. `unscored`: the evaluator could not tell.
CREATE VIEW v_quality_sample AS
SELECT run_id, arm_id, task, fault, sample, evaluator, version,
       avg(value) AS value, count(value) AS n, count(*) - count(value) AS unscored
FROM v_score
GROUP BY run_id, arm_id, task, fault, sample, evaluator, version;

-- Mean score per evaluator.
CREATE VIEW v_quality AS
SELECT run_id, arm_id, task, fault, evaluator, version,
       sum(value * n) / nullif(sum(n), 0) AS value, sum(n) AS n, sum(unscored) AS unscored
FROM v_quality_sample
GROUP BY run_id, arm_id, task, fault, evaluator, version;

-- Samples of a problem and how many of them passed: scores of evaluators named 'pass'.
CREATE VIEW v_pass_count AS
SELECT run_id, arm_id, task, fault, prompt_id, version,
       count(value) AS n, CAST(sum(value) AS INTEGER) AS c, count(*) - count(value) AS unscored
FROM v_score
WHERE evaluator = 'pass'
GROUP BY run_id, arm_id, task, fault, prompt_id, version;

-- pass@k (Chen et al. 2021, section 2.1): the mean over problems of 1 - C(n-c, k) / C(n, k), for every
-- k that no problem has fewer samples than, up to 100. No row where a sample could not be judged.
-- miss: C(n-c, k) / C(n, k) as a product over k, exactly 0 from k > n-c on.
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

-- Steps by what was drafted and kept. A step cut by the stop rule kept no target token
-- (emitted = accepted): what would have happened behind the cut is unknown.
CREATE VIEW v_acceptance_histogram AS
SELECT g.run_id, g.arm_id, p.task, g.fault, s.drafted_depth, s.accepted,
       s.emitted <= s.accepted AS cut, count(*) AS steps
FROM generation g
JOIN prompt p ON p.id = g.prompt_id
JOIN turn t ON t.generation_id = g.id
JOIN step s ON s.turn_id = t.id
WHERE g.status = 'ok'
GROUP BY g.run_id, g.arm_id, p.task, g.fault, s.drafted_depth, s.accepted, cut;

-- Draft nodes by their place in the tree: depth and siblings in front of them. All finished
-- generations count, every timing repeat as well, as in v_acceptance_histogram.
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

-- Steps of batches, once each: members of one call share its steps.
CREATE VIEW v_batch_step AS
SELECT g.run_id, g.arm_id, g.fault, b.call, s.number, s.members, s.rows, s.emitted, s.ns
FROM generation g
JOIN turn t ON t.generation_id = g.id
JOIN batch_turn b ON b.turn_id = t.id
JOIN batch_step s ON s.turn_id = t.id
WHERE g.status = 'ok'
GROUP BY g.run_id, g.arm_id, g.fault, b.call, s.number;

-- How long the turns of finished generations had to wait, in a batch or alone: for the first token, and
-- from there to the last. Alone that is the time of the turn's own work.
CREATE VIEW v_batch_turn AS
SELECT g.run_id, g.arm_id, g.prompt_id, p.task, g.id AS generation_id, t.idx AS turn, g.fault,
       t.n_tokens, coalesce(b.first_token_ns, t.prefill_ns) AS first_token_ns,
       coalesce(b.wall_ns, t.decode_ns + t.draft_prefill_ns) AS wall_ns
FROM generation g
JOIN prompt p ON p.id = g.prompt_id
JOIN turn t ON t.generation_id = g.id
LEFT JOIN batch_turn b ON b.turn_id = t.id
WHERE g.status = 'ok';

-- What servers counted of their finished turns, beside what their client saw.
CREATE VIEW v_endpoint_turn AS
SELECT g.run_id, g.arm_id, g.prompt_id, p.task, g.id AS generation_id, t.idx AS turn, g.fault,
       t.n_tokens, e.attempts, e.first_token_ns, t.decode_ns, e.prompt_ms, e.decode_ms,
       t.n_prompt_tokens, e.prompt_tokens, e.cached_tokens, e.new_tokens,
       e.drafted, e.accepted, e.target_steps,
       1.0 * max(t.n_tokens - 1, 0) / nullif(e.target_steps, 0) AS tau,
       1.0 * e.accepted / nullif(e.drafted, 0) AS alpha_draft
FROM generation g
JOIN prompt p ON p.id = g.prompt_id
JOIN turn t ON t.generation_id = g.id
JOIN endpoint_turn e ON e.turn_id = t.id
WHERE g.status = 'ok';

-- What the accounting rules forbid; empty when all is well. One row per offending turn.
CREATE VIEW v_accounting AS
SELECT g.run_id, g.arm_id, g.id AS generation_id, t.idx AS turn, g.fault,
       CASE
         WHEN t.emitted <> max(t.n_tokens - 1, 0) THEN 'steps emitted another number of tokens'
         WHEN length(t.tokens) <> 4 * t.n_tokens THEN 'token blob of another length'
         -- A server's answer: its steps are pieces, and its counters are the server's.
         WHEN EXISTS (SELECT 1 FROM endpoint_turn e WHERE e.turn_id = t.id)
           THEN CASE WHEN coalesce(sum(s.emitted), 0) <> t.emitted
                     THEN 'pieces have another number of tokens' END
         WHEN coalesce(sum(s.emitted), 0) <> t.emitted OR coalesce(sum(s.accepted), 0) <> t.accepted
           OR coalesce(sum(s.drafted), 0) <> t.drafted OR count(s.idx) <> t.n_steps
           OR coalesce(sum(s.rows), 0) <> t.rows OR coalesce(sum(s.drafted = 0), 0) <> t.undrafted
           THEN 'counters differ from the steps'
         WHEN sum(s.accepted > s.drafted_depth) > 0 THEN 'accepted more than was drafted'
         WHEN sum(s.emitted <> s.accepted + 1 AND s.idx < t.n_steps - 1) > 0
           THEN 'a step emitted other than accepted + 1'
         WHEN sum(s.idx = t.n_steps - 1 AND s.emitted NOT IN (s.accepted, s.accepted + 1)) > 0
           THEN 'the last step emitted other than accepted or accepted + 1'
         WHEN (SELECT count(*) FROM batch_step b WHERE b.turn_id = t.id) <>
              CASE WHEN EXISTS (SELECT 1 FROM batch_turn b WHERE b.turn_id = t.id)
                   THEN t.n_steps ELSE 0 END
           THEN 'steps of the batch differ from the steps'
       END AS problem
FROM generation g
JOIN turn t ON t.generation_id = g.id
LEFT JOIN step s ON s.turn_id = t.id
WHERE g.status = 'ok'
GROUP BY g.run_id, g.id, t.id
HAVING problem IS NOT NULL;
