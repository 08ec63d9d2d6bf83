// Figures over the batch sizes of a run; a run without batches has none of them.

const batchRows = () =>
    data.rows.filter((r) => r.dataset === dataset && r.role !== 'aa' && r.batch);
const methodsOf = (rows) => [...new Set(rows.map((r) => r.batch.method))];

function drawSpeedupByBatch() {
  const rows = batchRows().filter((r) => r.role === 'method' && isNumber(r.speedup));
  if (rows.length === 0)
    return show('fig-batches', {missing: 'No method was measured against plain decoding here.'});
  const names = methodsOf(rows);
  const series = names.flatMap((name) => {
    const own = rows.filter((r) => r.batch.method === name);
    const measured = {
      label: name,
      style: seriesStyle(name),
      points: own.map((r) => ({
                        x: r.batch.size,
                        y: r.speedup,
                        error: [r.speedup_lo, r.speedup_hi],
                        text: speedupText(r),
                      })),
    };
    const told = own.filter((r) => isNumber(r.batch.predicted));
    if (told.length === 0) return [measured];
    return [
      measured, {
        label: `${name}, predicted`,
        style: {...seriesStyle(name), borderDash: [2, 4], pointStyle: 'cross'},
        points: told.map((r) => ({
                           x: r.batch.size,
                           y: r.batch.predicted,
                           text: fixed(r.batch.predicted, 2),
                         })),
      }
    ];
  });
  const config = lines(series, {
    x: 'batch',
    y: 'speedup',
    yFrom: 0,
    yTop: highest(rows.map((r) => r.speedup)),
    plugins: {reference: {axis: 'y', value: 1}},
  });
  const margin = 1.15;  // points at the ends are whole
  config.options.scales.x = {
    type: 'logarithmic',
    title: title('batch size'),
    min: kBatches[0] / margin,
    max: kBatches[kBatches.length - 1] * margin,
    afterBuildTicks: (axis) => {
      axis.ticks = kBatches.map((value) => ({value}));
    },
    ticks: {callback: (value) => String(value), autoSkip: false},
  };
  const at = (name, size) => rows.find((r) => r.batch.method === name && r.batch.size === size);
  const cell = (r) => (r ? speedupText(r) : '-');
  show('fig-batches', {
    plots: [{height: 320 + (narrow() ? 26 : 20) * Math.ceil(series.length / 2), config}],
    header: ['method', ...kBatches.map((size) => `batch ${size}`), 'faster up to batch [95 %]'],
    rows: names.map(
        (name) =>
            [name,
             ...kBatches.map((size) => cell(at(name, size))),
             rows.find((r) => r.batch.method === name).batch.crossover ?? '-',
  ]),
    note: overlapNote(rows),
  });
}

function drawFront() {
  const rows = batchRows().filter((r) => isNumber(r.tok_s) && isNumber(r.batch.tpot_ms));
  if (rows.length === 0) return show('fig-front', {missing: 'No answer has a second token here.'});
  const tokensText = (r) => withRange(r.tok_s, r.batch.tok_s_lo, r.batch.tok_s_hi, 1);
  const text = (r) => `${named(r)}: ${tokensText(r)} tok/s, TPOT ${fixed(r.batch.tpot_ms, 1)} ms`;
  const front = rows.filter((r) => r.batch.front).sort((a, b) => a.batch.tpot_ms - b.batch.tpot_ms);
  const point = (r) => ({x: r.batch.tpot_ms, y: r.tok_s});
  const config = {
    type: 'scatter',
    data: {
      datasets: methodsOf(rows)
                    .map((name) => {
                      const own = rows.filter((r) => r.batch.method === name);
                      return {
                        label: name + apart(own[0]),
                        data: own.map(point),
                        showLine: true,
                        borderWidth: 1,
                        errors: own.map((r) => ({y: [r.batch.tok_s_lo, r.batch.tok_s_hi]})),
                        errorColour: seriesColour(name),
                        texts: own.map(text),
                        titles: own.map((r) => `batch ${r.batch.size}`),
                        pointRadius: own.map((r) => (r.batch.front ? 9 : 5)),
                        pointBorderWidth: 2,
                        ...seriesStyle(name),
                        ...(apart(own[0]) ? {backgroundColor: 'transparent'} : {}),
                      };
                    })
                    .concat([{
                      label: 'front',
                      data: front.map(point),
                      showLine: true,
                      texts: front.map((r) => `on the front: ${named(r)}`),
                      titles: front.map(() => ''),
                      borderColor: colour('muted'),
                      borderWidth: 2.5,
                      pointRadius: 0,
                      pointStyle: 'line',
                      order: 1,
                    }]),
    },
    options: {
      scales: {
        x: {title: title('ms per token of a sequence (TPOT, p50)'), beginAtZero: true},
        y: {title: title('tokens per second of the batch'), beginAtZero: true, grace: '5%'},
      },
      plugins: {
        legend: {position: 'bottom', labels: {usePointStyle: true, color: colour('ink')}},
        tooltip,
      },
    },
  };
  show('fig-front', {
    plots: [{height: 340 + (narrow() ? 24 : 10) * methodsOf(rows).length, config}],
    header: ['method', 'batch', 'tok/s [95 %]', 'TPOT p50 ms', 'on the front'],
    rows: rows.map(
        (r) =>
            [r.batch.method + apart(r),
             String(r.batch.size),
             tokensText(r),
             fixed(r.batch.tpot_ms, 1),
             apart(r)          ? 'not ranked' :
                 r.batch.front ? 'yes' :
                                 'no',
  ]),
    note: overlapNote(rows),
  });
}

// Of every drafter at every batch: what its lengths give there, for all prompts and by context.
const lengthsOf = (rows) =>
    rows.filter((r) => r.batch.lengths)
        .flatMap(
            (r) => r.batch.lengths.at.map((at) => ({
                                            drafter: r.batch.lengths.drafter,
                                            size: r.batch.size,
                                            context: isNumber(at.context_up_to) ?
                                                `${at.context_above + 1} to ${at.context_up_to}` :
                                                'all',
                                            predicted: at.predicted,
                                            measured: at.measured,
                                          })));
const bestLength = (lengths) =>
    lengths.reduce((best, of) => (best && best.speedup >= of.speedup ? best : of), undefined);

// A row per drafter and context, a column per batch; `kind` is 'predicted' or 'measured', of at
// least so many lengths.
function lengthMap(places, kind, least) {
  const drawn = places.filter((p) => p[kind].length >= least);
  if (drawn.length === 0) return [];
  const longest = Math.max(...drawn.map((p) => bestLength(p[kind]).k));
  const made = element('table', undefined, 'heat');
  made.createCaption().textContent = `best draft length, ${kind} (speedup)`;
  const head = made.createTHead().insertRow();
  for (const name of ['method', 'context', ...kBatches.map((size) => `batch ${size}`)])
    head.append(element('th', name));
  const body = made.createTBody();
  const names = [...new Set(drawn.map((p) => JSON.stringify([p.drafter, p.context])))];
  for (const [drafter, context] of names.map((name) => JSON.parse(name))) {
    const line = body.insertRow();
    line.append(element('th', drafter), element('th', context));
    for (const size of kBatches) {
      const place =
          drawn.find((p) => p.drafter === drafter && p.context === context && p.size === size);
      const best = place && bestLength(place[kind]);
      const cell = element('td', best ? `${best.k} (${fixed(best.speedup, 2)})` : '-');
      if (best) heat(cell, longest > 1 ? (best.k - 1) / (longest - 1) : 1);
      line.append(cell);
    }
  }
  const scroll = element('div', undefined, 'scroll');
  scroll.dataset.place = 'above';
  scroll.append(made);
  return [scroll];
}

function drawLengths() {
  const rows = batchRows();
  const places = lengthsOf(rows);
  document.getElementById('fig-lengths').hidden = places.length === 0;
  if (places.length === 0) return;
  const text = (of) => withRange(of.speedup, of.speedup_lo, of.speedup_hi, 2);
  show('fig-lengths', {
    extra: [...lengthMap(places, 'predicted', 1), ...lengthMap(places, 'measured', 2)],
    header: ['method', 'context', 'batch', 'k', 'predicted [95 %]', 'measured [95 %]'],
    rows: places.flatMap((p) => {
      const lengths = [...new Set([...p.predicted, ...p.measured].map((of) => of.k))];
      const at = (list, k) => list.find((of) => of.k === k);
      return lengths.sort((a, b) => a - b)
          .map(
              (k) =>
                  [p.drafter,
                   p.context,
                   String(p.size),
                   String(k),
                   at(p.predicted, k) ? text(at(p.predicted, k)) : '-',
                   at(p.measured, k) ? text(at(p.measured, k)) : '-',
      ]);
    }),
    note: overlapNote(rows.filter((r) => r.batch.lengths)),
  });
}

function drawBatches() {
  for (const id of ['fig-batches', 'fig-front'])
    document.getElementById(id).hidden = kBatches.length === 0;
  if (kBatches.length === 0) return;
  drawSpeedupByBatch();
  drawFront();
  drawLengths();
}
