// The figures with a selector of their own: swept parameters, and one generation step by step.

// ---- swept parameters ----

const sweepName = (s) =>
    `${s.method}: ${s.parameters.join(' and ')}${s.fixed ? ` (${s.fixed})` : ''}`;

function drawCurve(sweep) {
  const rows =
      sweep.points.map((p) => ({x: p.values[0], row: rowOf(p.label, whole)})).filter((p) => p.row);
  const style = {
    ...seriesStyle(''),
    borderColor: colour('series-0'),
    backgroundColor: colour('series-0')
  };
  const parameter = sweep.parameters[0];
  const curve = (key, digits, reference) => {
    const best = highest(rows.map((p) => p.row[key]));
    const ends =
        rows.flatMap((p) => [p.row[key], p.row[`${key}_lo`], p.row[`${key}_hi`]]).filter(isNumber);
    const config = lines(
        [{
          label: key,
          style,
          points: rows.map(({x, row}) => ({
                             x,
                             y: row[key],
                             error: [row[`${key}_lo`], row[`${key}_hi`]],
                             best: row[key] === best,
                             text: withRange(row[key], row[`${key}_lo`], row[`${key}_hi`], digits),
                           })),
        }],
        {x: parameter, y: key, yTop: Math.max(...ends, 1), plugins: reference ? {reference} : {}});
    config.options.scales.y.suggestedMin = Math.min(...ends, 1);
    config.options.scales.y.grace = '8%';
    config.options.scales.x.grace = '8%';
    return {title: key, height: 260, config};
  };
  show('fig-sweep', {
    plots: [curve('speedup', 2, {axis: 'y', value: 1}), curve('tau', 2)],
    header: [parameter, 'speedup [95 %]', 'tau [95 %]', 'arm'],
    rows: rows.map(
        ({x, row}) =>
            [String(x),
             speedupText(row),
             withRange(row.tau, row.tau_lo, row.tau_hi, 2),
             marked(row),
  ]),
    note: overlapNote(rows.map((p) => p.row)),
  });
}

// Pale to deep blue, with ink that can be read on it.
function heat(cell, share) {
  const mix = (from, to) => Math.round(from + (to - from) * share);
  cell.style.backgroundColor = `rgb(${mix(233, 8)}, ${mix(242, 81)}, ${mix(250, 140)})`;
  cell.style.color = share > 0.7 ? '#ffffff' : '#10151a';
}

function heatMap(sweep, key) {
  const axis = (at) => [...new Set(sweep.points.map((p) => p.values[at]))].sort((a, b) => a - b);
  const [down, across] = [axis(0), axis(1)];
  const cellOf = (a, b) => {
    const point = sweep.points.find((p) => p.values[0] === a && p.values[1] === b);
    return point && rowOf(point.label, whole);
  };
  const values = sweep.points.map((p) => rowOf(p.label, whole)?.[key]).filter(isNumber);
  const [least, best] = [Math.min(...values), Math.max(...values)];
  const made = element('table', undefined, 'heat');
  made.createCaption().textContent =
      `${key}, by ${sweep.parameters[0]} (down) and ${sweep.parameters[1]} (across)`;
  const head = made.createTHead().insertRow();
  head.append(element('th', `${sweep.parameters[0]} \u2193 ${sweep.parameters[1]} \u2192`));
  for (const b of across) head.append(element('th', String(b)));
  const body = made.createTBody();
  for (const a of down) {
    const line = body.insertRow();
    line.append(element('th', String(a)));
    for (const b of across) {
      const row = cellOf(a, b);
      const value = row?.[key];
      const text = row ? withRange(value, row[`${key}_lo`], row[`${key}_hi`], 2) : '-';
      const cell = element('td', value === best ? `${text} \u2605` : text);
      if (isNumber(value)) heat(cell, best > least ? (value - least) / (best - least) : 1);
      if (value === best) cell.className = 'best';
      line.append(cell);
    }
  }
  const scroll = element('div', undefined, 'scroll');
  scroll.dataset.place = 'above';
  scroll.append(made);
  return scroll;
}

function drawSweep(at) {
  const sweep = data.sweeps[at];
  if (!sweep)
    return show('fig-sweep', {
      missing:
          'No two arms of a method differ in one numeric parameter only; name several, as in --methods pld:k={2,4,8}.',
    });
  if (sweep.parameters.length === 1) return drawCurve(sweep);
  show('fig-sweep', {
    extra: [heatMap(sweep, 'speedup'), heatMap(sweep, 'tau')],
    header: [...sweep.parameters, 'speedup [95 %]', 'tau [95 %]', 'arm'],
    rows: sweep.points.map((p) => [p, rowOf(p.label, whole)])
              .filter(([, row]) => row)
              .map(
                  ([p, row]) =>
                      [...p.values.map(String),
                       speedupText(row),
                       withRange(row.tau, row.tau_lo, row.tau_hi, 2),
                       marked(row),
  ]),
    note: overlapNote(sweep.points.map((p) => rowOf(p.label, whole))),
  });
}

// ---- one generation ----

function excerpt(generation) {
  const box = asDetails('Prompt and answer');
  box.dataset.place = 'above';
  for (const [name, text] of [['Prompt', generation.question], ['Answer', generation.answer]])
    if (text) box.append(element('p', name, 'note'), element('blockquote', text));
  return box;
}

function drawTimeline(at) {
  const generation = data.timelines[at];
  if (!generation) return show('fig-timeline', {missing: 'No generation was finished.'});
  const steps = generation.steps;  // see write_html.cpp for the columns
  const names = data.step_columns;
  const column = (name) => steps.map((s) => s[names.indexOf(name)]);
  const [drafted, accepted, emitted] = ['drafted', 'accepted', 'emitted'].map(column);
  const labels = steps.map((_, i) => String(i + 1));
  const stack = (series, axis) => ({
    type: 'bar',
    data: {
      labels,
      datasets: series.map(([label, values, name, digits]) => ({
                             label,
                             data: values,
                             backgroundColor: colour(name),
                             barPercentage: 1,
                             categoryPercentage: 0.9,
                             texts: values.map((v) => `${label}: ${fixed(Math.abs(v), digits)}`),
                             titles: labels.map((l) => `step ${l}`),
                           })),
    },
    options: {
      interaction: {mode: 'index', intersect: false},
      scales: {
        x: {stacked: true, grid: {display: false}, title: title('step'), ticks: {maxRotation: 0}},
        y: {
          stacked: true,
          title: title(axis),
          ticks: {
            precision: axis === 'tokens' ? 0 : undefined,
            callback: (v) => String(Math.abs(Number(v.toPrecision(6))))
          }
        },
      },
      plugins: {legend: {position: 'bottom'}, tooltip},
    },
  });
  const note = element(
      'p',
      `${generation.prompt} (${generation.task}), generation ${generation.generation}: ${
          generation.n_steps} steps` +
          (generation.n_steps > steps.length ? `, the first ${steps.length} shown` : '') +
          `; evalrun show ${generation.generation} prints it with its tokens.`,
      'note');
  note.dataset.place = 'above';
  show('fig-timeline', {
    extra: [note, excerpt(generation)],
    plots: [
      {
        title: 'tokens',
        height: 260,
        config: stack(
            [
              ['accepted from the draft', accepted, 'series-0', 0],
              ['the target\u2019s own', emitted.map((e, i) => e - accepted[i]), 'series-plain', 0],
              ['drafted in vain', drafted.map((d, i) => -(d - accepted[i])), 'series-1', 0],
            ],
            'tokens'),
      },
      {
        title: 'time',
        height: 260,
        config: stack(
            [
              ['verify', column('verify_ms'), 'series-0', 3],
              ['draft', column('draft_ms'), 'series-4', 3],
              ['commit', column('commit_ms'), 'series-2', 3],
              ['other', column('other_ms'), 'series-plain', 3],
            ],
            'ms'),
      },
    ],
    header: ['step', ...names],
    rows: steps.map(
        (s, i) =>
            [String(i + 1),
             ...s.map((v, c) => (names[c].endsWith('_ms') ? fixed(v, 3) : String(v))),
  ]),
  });
}
