// The figures over the whole run, from the JSON block of the page.

const data = JSON.parse(document.getElementById('data').textContent);
const methods = [...new Set(data.rows.filter((r) => r.role === 'method').map((r) => r.method))];
// Sizes of batches, ascending; none where all arms have batch 1. Most figures are of one of them.
const kBatches =
    [...new Set(data.rows.map((r) => r.batch?.size).filter(isNumber))].sort((a, b) => a - b);
let batch = kBatches[0];
const atBatch = (r) => !r.batch || r.batch.size === batch;
// A method looks the same at every size.
const seriesNames = new Map(data.rows.map((r) => [r.method, r.batch?.method ?? r.method]));
const seriesName = (label) => seriesNames.get(label) ?? label;
const seriesOrder = [...new Set(methods.map(seriesName))];
const kColours = 7;
const kPoints = ['circle', 'rectRot', 'triangle', 'rect', 'crossRot'];

function seriesColour(label) {
  const at = seriesOrder.indexOf(seriesName(label));
  return colour(at < 0 ? 'series-plain' : `series-${at % kColours}`);
}
// A second sign beside the colour, for readers and printers without it.
function seriesStyle(label) {
  const round = Math.max(0, seriesOrder.indexOf(seriesName(label)));
  return {
    borderColor: seriesColour(label),
    backgroundColor: seriesColour(label),
    pointStyle: kPoints[round % kPoints.length],
    borderDash: [[], [6, 3], [2, 3]][Math.floor(round / kColours) % 3],
  };
}

const whole = data.datasets[data.datasets.length - 1];
let dataset = whole;
const rowsOf = (name) =>
    data.rows.filter((r) => r.dataset === name && r.role !== 'aa' && atBatch(r));
const rowOf = (label, name) => data.rows.find((r) => r.dataset === name && r.method === label);
// Arms trained on test prompts, and those whose figures flatter their method, have the marks of the
// tables above, and their lines below.
const marked = (r) =>
    r.method + (r.training_overlap ? ' \u2020' : '') + (r.flatters ? ' \u2021' : '');
// What is ranked with none of the others.
const apart = (r) => (r.synthetic ? ' (synthetic)' : r.lossy ? ' (not lossless)' : '');
const named = (r) => marked(r) + apart(r);
const overlapNote = (rows) =>
    [
      rows.some((r) => r?.training_overlap) ? data.overlap_note : '',
      rows.some((r) => r?.flatters) ? data.flatters_note : '',
    ].filter(Boolean).join(' ');
// A figure that has an interval, with a star where it is from few prompts.
const ratioText = (r, key) => withRange(r[key], r[`${key}_lo`], r[`${key}_hi`], 2) +
    (isNumber(r[`${key}_lo`]) && r[`${key}_n_eff`] < data.indicative_below ? '*' : '');
const speedupText = (r) => ratioText(r, 'speedup');
const highest = (values) => Math.max(0, ...values.filter(isNumber));

const title = (text) => ({display: true, text});
// Chart.js shows "label: text" with the interval in it.
const tooltip = {
  callbacks: {
    title: (items) =>
        (items.length ?
             [].concat(items[0].dataset.titles?.[items[0].dataIndex] ?? items[0].label).join('') :
             ''),
    label: (item) => item.dataset.texts ? item.dataset.texts[item.dataIndex] :
                                          `${item.dataset.label}: ${fixed(item.parsed.y, 3)}`,
  },
};

// Horizontal bars, one per label; labels are wrapped to the width of the page, and at "\n".
function bars(labels, datasets, {stacked = false, top, axis, plugins = {}, legend = false}) {
  const width = narrow() ? 18 : 36;
  const lines = labels.map((label) => label.split('\n').flatMap((part) => wrap(part, width)));
  const height = lines.reduce((sum, l) => sum + 14 + 16 * Math.max(1, l.length), 0);
  return {
    height: height + 60 + (legend ? 34 : 0),
    config: {
      type: 'bar',
      data: {labels: lines, datasets},
      options: {
        indexAxis: 'y',
        scales: {
          x: {stacked, beginAtZero: true, suggestedMax: top, title: title(axis)},
          y: {stacked, grid: {display: false}, ticks: {autoSkip: false, color: colour('ink')}},
        },
        plugins: {legend: {display: legend}, tooltip, ...plugins},
      },
    },
  };
}

function drawSpeedup() {
  const rows = rowsOf(dataset).filter((r) => isNumber(r.speedup));
  if (rows.length < 2)
    return show('fig-speedup', {
      missing: 'There is no speedup to show: no method was measured against plain decoding here.'
    });
  const aa = data.rows.find((r) => r.dataset === dataset && r.role === 'aa' && atBatch(r));
  const end = (r) => (isNumber(r.speedup_hi) ? r.speedup_hi : r.speedup);
  const plot = bars(
      rows.map(named), [{
        data: rows.map((r) => r.speedup),
        backgroundColor: rows.map((r) => seriesColour(r.method) + (apart(r) ? '80' : '')),
        borderColor: rows.map((r) => seriesColour(r.method)),
        borderWidth: 1,
        barPercentage: 0.7,
        errors: rows.map((r) => ({x: [r.speedup_lo, r.speedup_hi]})),
        texts: rows.map(speedupText),
        titles: rows.map(named),
      }],
      {
        top: highest(rows.map(end)) * (narrow() ? 1.25 : 1.12),
        axis: 'speedup',
        plugins: {
          reference: {axis: 'x', value: 1, band: aa ? [aa.speedup_lo, aa.speedup_hi] : undefined},
          marks: {ends: rows.map(end), texts: rows.map((r) => fixed(r.speedup, 2))},
        },
      });
  show('fig-speedup', {
    plots: [plot],
    header: [
      'method', 'speedup [95 %]', 'request [95 %]', 'first token ms', 'first token / plain [95 %]',
      'tok/s', 'prompts'
    ],
    rows: rows.map(
        (r) =>
            [named(r),
             speedupText(r),
             ratioText(r, 'request_speedup'),
             fixed(r.first_token_ms, 1),
             ratioText(r, 'first_token_ratio'),
             fixed(r.tok_s, 1),
             String(r.n_prompts),
  ]),
    note: overlapNote(rows),
  });
}

function drawWhy() {
  const rows = rowsOf(dataset).filter((r) => isNumber(r.t_ratio) && isNumber(r.tau));
  if (rows.length === 0)
    return show(
        'fig-why',
        {missing: 'Nothing was measured against plain decoding here, so nothing explains it.'});
  const parts = [
    ['T(n)/T(1)', 't_ratio', 'series-0'],
    ['draft', 'draft_share', 'series-4'],
    ['overhead', 'overhead', 'series-1'],
  ];
  const cost = (r) => parts.reduce((sum, [, key]) => sum + (r[key] || 0), 0);
  const residual = (r) => (isNumber(r.residual) ? `${fixed(100 * r.residual, 1)} %` : '-');
  const plot = bars(
      rows.map((r) => `${named(r)}\nresidual ${residual(r)}`),
      parts.map(([label, key, name]) => ({
                  label,
                  data: rows.map((r) => r[key]),
                  backgroundColor: colour(name),
                  barPercentage: 0.7,
                  texts: rows.map((r) => `${label}: ${fixed(r[key], 3)}`),
                })),
      {
        stacked: true,
        top: highest(rows.flatMap((r) => [r.tau, cost(r)])) * (narrow() ? 1.3 : 1.15),
        axis: 'plain steps, and tokens per step',
        legend: true,
        plugins: {
          marks: {
            ends: rows.map((r) => Math.max(cost(r), r.tau)),
            texts: rows.map((r) => `tau ${fixed(r.tau, 2)}`),
            diamonds: rows.map((r) => r.tau),
          },
        },
      });
  show('fig-why', {
    plots: [plot],
    header: ['method', 'speedup', '= tau', '/ (T(n)/T(1)', '+ draft', '+ overhead)', 'residual'],
    rows: rows.map(
        (r) =>
            [named(r),
             fixed(r.speedup, 3),
             fixed(r.tau, 3),
             fixed(r.t_ratio, 3),
             fixed(r.draft_share, 3),
             fixed(r.overhead, 3),
             residual(r),
  ]),
    note: overlapNote(rows),
  });
}

// Lines over a numeric axis, one per series: {label, points: [{x, y, error, text}], style}.
function lines(series, {x, y, plugins = {}, yFrom, yTop, xTicks}) {
  return {
    type: 'line',
    data: {
      datasets:
          series.map((s) => ({
                       label: s.label,
                       data: s.points.map((p) => ({x: p.x, y: p.y})),
                       errors: s.points.map((p) => ({y: p.error})),
                       errorColour: s.style.borderColor,
                       texts: s.points.map((p) => `${s.label}: ${p.text}`),
                       titles: s.points.map((p) => `${x} ${p.x}`),
                       borderWidth: 1.75,
                       pointRadius: s.points.map((p) => (p.best ? 8 : 4)),
                       ...s.style,
                       pointStyle: s.points.map((p) => (p.best ? 'star' : s.style.pointStyle)),
                       pointBorderWidth: 2,
                     })),
    },
    options: {
      scales: {
        x: {
          type: 'linear',
          title: title(x),
          ticks: {precision: 0, ...xTicks},
          offset: false,
          grace: series.length ? undefined : 1
        },
        y: {title: title(y), min: yFrom, suggestedMax: yTop},
      },
      plugins: {
        legend: {
          display: series.length > 1,
          position: 'bottom',
          labels: {usePointStyle: true, color: colour('ink')}
        },
        tooltip,
        ...plugins,
      },
    },
  };
}

function drawAcceptance() {
  const rows = rowsOf(dataset).filter((r) => r.alpha_cond.length > 0);
  if (rows.length === 0)
    return show('fig-acceptance', {missing: 'No method drafted anything here.'});
  const kDeepest = 24;
  const plot = (key, name) => ({
    title: name,
    height: 300 + (narrow() ? 26 : 20) * Math.ceil(rows.length / 2),
    config: lines(
        rows.map((r) => ({
                   label: marked(r),
                   style: seriesStyle(r.method),
                   points: r[key]
                               .slice(0, kDeepest)
                               .map((v, d) => ({x: d + 1, y: v, text: `${fixed(100 * v, 1)} %`})),
                 })),
        {x: 'depth', y: 'share of steps', yFrom: 0, yTop: 1, xTicks: {stepSize: 1}}),
  });
  const deepest = Math.min(kDeepest, Math.max(...rows.map((r) => r.alpha_cond.length)));
  show('fig-acceptance', {
    plots: [
      plot('alpha_cond', 'accepted, given all before'),
      plot('alpha_joint', 'accepted, of all steps')
    ],
    header: ['method', ...Array.from({length: deepest}, (_, d) => `depth ${d + 1}`)],
    rows: rows.flatMap(
        (r) => [
            [
              `${marked(r)}, given`,
              ...Array.from({length: deepest}, (_, d) => fixed(r.alpha_cond[d], 3))
            ],
            [
              `${marked(r)}, of all`,
              ...Array.from({length: deepest}, (_, d) => fixed(r.alpha_joint[d], 3))
            ],
  ]),
    note: overlapNote(rows),
  });
}

const evaluators = [...new Set(data.rows.flatMap((r) => Object.keys(r.quality)))].sort();
function drawPareto(at) {
  const evaluator = evaluators[at];
  const rows =
      rowsOf(dataset).filter((r) => isNumber(r.speedup) && isNumber(r.quality[evaluator]?.value));
  if (rows.length === 0)
    return show('fig-pareto', {
      missing: evaluators.length === 0 ?
          'Nothing was scored in this run; evalrun score adds scores to a stored run.' :
          `No answer was scored by ${evaluator} here.`,
    });
  const quality = (r) => r.quality[evaluator];
  const ranked = rows.filter((r) => !apart(r)).sort((a, b) => b.speedup - a.speedup);
  let highestYet = -Infinity;
  const front = ranked.filter((r) => {
    if (quality(r).value <= highestYet) return false;
    highestYet = quality(r).value;
    return true;
  });
  const qualityText = (r) => withRange(quality(r).value, quality(r).lo, quality(r).hi, 3);
  const config = {
    type: 'scatter',
    data: {
      datasets: rows.map(
          (r) => ({
            label: named(r),
            data: [{x: r.speedup, y: quality(r).value}],
            errors: [{x: [r.speedup_lo, r.speedup_hi], y: [quality(r).lo, quality(r).hi]}],
            errorColour: seriesColour(r.method),
            texts: [`${named(r)}: speedup ${speedupText(r)}, ${evaluator} ${qualityText(r)}`],
            titles: [''],
            pointRadius: front.includes(r) ? 9 : 6,
            pointBorderWidth: 2,
            ...seriesStyle(r.method),
            ...(apart(r) ? {backgroundColor: 'transparent', errorDash: [3, 3]} : {}),
          })).concat([{
            label: 'front',
            type: 'line',
            data: front.map((r) => ({x: r.speedup, y: quality(r).value})),
            texts: front.map((r) => `on the front: ${marked(r)}`),
            titles: front.map(() => ''),
            borderColor: colour('muted'),
            borderWidth: 1.5,
            pointRadius: 0,
            pointStyle: 'line',
            order: 1,
          }]),
    },
    options: {
      scales: {
        x: {
          title: title('speedup'),
          suggestedMin: Math.min(1, ...rows.map((r) => r.speedup_lo ?? r.speedup)),
          suggestedMax: highest(rows.map((r) => r.speedup_hi ?? r.speedup)),
          grace: '5%',
        },
        y: {
          title: title(evaluator),
          suggestedMin: Math.min(...rows.map((r) => quality(r).lo ?? quality(r).value)),
          suggestedMax: highest(rows.map((r) => quality(r).hi ?? quality(r).value)),
          grace: '5%',
        },
      },
      plugins: {
        legend: {position: 'bottom', labels: {usePointStyle: true, color: colour('ink')}},
        tooltip,
        reference: {axis: 'x', value: 1},
      },
    },
  };
  show('fig-pareto', {
    plots: [{height: 320 + (narrow() ? 24 : 10) * rows.length, config}],
    header: ['method', 'speedup [95 %]', `${evaluator} [95 %]`, 'scored', 'on the front'],
    rows: rows.map(
        (r) =>
            [named(r),
             speedupText(r),
             qualityText(r),
             String(quality(r).n),
             apart(r) ? 'not ranked' : front.includes(r) ? 'yes' : 'no',
  ]),
    note: overlapNote(rows),
  });
}

// Bars of all arms side by side would be a wall: those drawn until the legend is clicked. Methods
// that are ranked with no others are drawn where all are.
const kDrawnArms = 6;
const armOf = (m) => data.rows.find((r) => r.method === m);
const isApart = (m) => apart(armOf(m)) !== '';
const fullName = (m) => named(armOf(m));
function drawnArms(shown) {
  if (shown.length <= kDrawnArms + 2) return shown;
  const speed = (m) => rowOf(m, whole)?.speedup ?? 0;
  return shown.filter((m) => !isApart(m)).sort((a, b) => speed(b) - speed(a)).slice(0, kDrawnArms);
}

const partSets = [...new Set(data.parts.map((p) => `${p.dataset}, by ${p.axis}`))];
function drawParts(at) {
  const parts = data.parts.filter((p) => `${p.dataset}, by ${p.axis}` === partSets[at]);
  if (parts.length === 0)
    return show('fig-parts', {missing: 'The prompts of this run have no categories or languages.'});
  const shown = methods.filter((m) => atBatch(armOf(m)) && parts.some((p) => p.method === m));
  const drawnNow = drawnArms(shown);
  const names = [...new Set(parts.map((p) => p.part))];
  const of = (m, part) => parts.find((p) => p.method === m && p.part === part);
  const plot = bars(
      names, shown.map((m) => ({
                         label: fullName(m),
                         hidden: !drawnNow.includes(m),
                         data: names.map((part) => of(m, part)?.speedup ?? null),
                         backgroundColor: seriesColour(m) + (isApart(m) ? '80' : ''),
                         errors: names.map(
                             (part) => ({x: [of(m, part)?.speedup_lo, of(m, part)?.speedup_hi]})),
                         texts: names.map(
                             (part) => of(m, part) ? `${fullName(m)}: ${speedupText(of(m, part))}` : ''),
                       })),
      {
        // An interval from two prompts may be hundreds wide.
        top: 1.25 * highest(parts.map((p) => p.speedup)),
        axis: 'speedup',
        legend: true,
        plugins: {reference: {axis: 'x', value: 1}},
      });
  plot.config.options.scales.x.max = plot.config.options.scales.x.suggestedMax;
  plot.height = 90 + 22 * Math.ceil(shown.length / (narrow() ? 1 : 3)) +
      names.length * (11 * drawnNow.length + 20);
  show('fig-parts', {
    plots: [plot],
    header: ['part', 'method', 'speedup [95 %]', 'tau', 'prompts'],
    rows: parts.map((p) => [p.part, fullName(p.method), speedupText(p), fixed(p.tau, 2),
                            String(p.n_prompts)]),
    note: overlapNote(shown.map(armOf)),
  });
}

function drawDatasets() {
  const names = data.datasets.filter((name) => data.datasets.length === 1 || name !== 'all');
  const shown = methods.filter(
      (m) => atBatch(armOf(m)) && names.some((name) => isNumber(rowOf(m, name)?.speedup)));
  if (names.length < 2 || shown.length === 0)
    return show('fig-datasets', {
      missing:
          'The run has one data set; evalrun report --split-by category or --split-by language cuts it into parts.',
    });
  const drawnNow = drawnArms(shown);
  const plot = bars(
      names, shown.map((m) => {
        const rows = names.map((name) => rowOf(m, name));
        return {
          label: fullName(m),
          hidden: !drawnNow.includes(m),
          data: rows.map((r) => r?.speedup ?? null),
          backgroundColor: seriesColour(m) + (isApart(m) ? '80' : ''),
          errors: rows.map((r) => ({x: [r?.speedup_lo, r?.speedup_hi]})),
          texts: rows.map((r) => (r ? `${fullName(m)}: ${speedupText(r)}` : '')),
        };
      }),
      {
        top: highest(shown.flatMap((m) => names.map((name) => rowOf(m, name)?.speedup_hi))),
        axis: 'speedup',
        legend: true,
        plugins: {reference: {axis: 'x', value: 1}},
      });
  plot.height = 90 + 22 * Math.ceil(shown.length / (narrow() ? 1 : 3)) +
      names.length * (12 * drawnNow.length + 20);
  show('fig-datasets', {
    plots: [plot],
    header: ['data set', ...shown.map((m) => marked(armOf(m)))],
    rows: names.map(
        (name) =>
            [name, ...shown.map((m) => (rowOf(m, name) ? speedupText(rowOf(m, name)) : '-'))]),
    note: overlapNote(shown.map(armOf)),
  });
}

function drawCost() {
  const cost = data.row_cost;
  if (!cost) return show('fig-cost', {missing: 'The run stored no table of row costs.'});
  const style = {
    ...seriesStyle(''),
    borderColor: colour('series-0'),
    backgroundColor: colour('series-0')
  };
  const text = (r) => withRange(r.ratio, r.lo, r.hi, 2);
  const config = lines(
      [{
        label: 'T(n)/T(1)',
        style,
        points: cost.rows.map((r) => ({x: r.rows, y: r.ratio, error: [r.lo, r.hi], text: text(r)}))
      }],
      {x: 'rows n', y: 'T(n)/T(1)', yFrom: 0, yTop: highest(cost.rows.map((r) => r.hi))});
  show('fig-cost', {
    plots: [{title: `${cost.context} tokens of context`, height: 280, config}],
    header: ['rows', 'T(n)/T(1) [quartiles]', 'ms'],
    rows: cost.rows.map((r) => [String(r.rows), text(r), fixed(r.ms, 2)]),
  });
}
