'use strict';
// Helpers of the report's figures: colours, plugins for Chart.js, and the table beside every chart.
// Text from the data reaches the page as text nodes and canvas text only, never as markup.

const narrow = () => document.documentElement.clientWidth < 560;
const colour = (name) =>
    getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();
const isNumber = (v) => typeof v === 'number' && Number.isFinite(v);
const fixed = (v, digits) => (isNumber(v) ? v.toFixed(digits) : '-');
const withRange = (v, lo, hi, digits) => isNumber(lo) && isNumber(hi) ?
    `${fixed(v, digits)} [${fixed(lo, digits)}, ${fixed(hi, digits)}]` :
    fixed(v, digits);

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

// Lines of at most `width` characters, broken after punctuation where there is some.
function wrap(label, width) {
  const lines = [];
  let line = '';
  for (const piece of label.split(/(?<=[:,/ ])/)) {
    if (line && (line + piece).length > width) {
      lines.push(line);
      line = '';
    }
    line += piece;
    for (; line.length > width; line = line.slice(width)) lines.push(line.slice(0, width));
  }
  if (line) lines.push(line);
  return lines;
}

// ---- plugins ----

function strokeLine(ctx, x1, y1, x2, y2) {
  ctx.beginPath();
  ctx.moveTo(x1, y1);
  ctx.lineTo(x2, y2);
  ctx.stroke();
}

// Intervals: dataset.errors[i] = {x: [lo, hi], y: [lo, hi]}, either may be missing.
const errorBars = {
  id: 'errorBars',
  afterDatasetsDraw(chart) {
    const ctx = chart.ctx;
    const cap = 4;
    chart.data.datasets.forEach((dataset, index) => {
      if (!dataset.errors || !chart.isDatasetVisible(index)) return;
      ctx.save();
      const area = chart.chartArea;  // an interval may leave it, where the axis is bounded
      ctx.beginPath();
      ctx.rect(area.left - cap, area.top - cap, area.width + 2 * cap, area.height + 2 * cap);
      ctx.clip();
      ctx.strokeStyle = dataset.errorColour || colour('chart-error');
      ctx.lineWidth = 1.25;
      ctx.setLineDash(dataset.errorDash || []);
      chart.getDatasetMeta(index).data.forEach((point, i) => {
        const error = dataset.errors[i] || {};
        if (error.x && error.x.every(isNumber)) {
          const [lo, hi] = error.x.map((v) => chart.scales.x.getPixelForValue(v));
          strokeLine(ctx, lo, point.y, hi, point.y);
          for (const x of [lo, hi]) strokeLine(ctx, x, point.y - cap, x, point.y + cap);
        }
        if (error.y && error.y.every(isNumber)) {
          const [lo, hi] = error.y.map((v) => chart.scales.y.getPixelForValue(v));
          strokeLine(ctx, point.x, lo, point.x, hi);
          for (const y of [lo, hi]) strokeLine(ctx, point.x - cap, y, point.x + cap, y);
        }
      });
      ctx.restore();
    });
  },
};

// A line at one value of an axis, and a band around it: options.plugins.reference.
const reference = {
  id: 'reference',
  beforeDatasetsDraw(chart, args, options) {
    if (!options.axis) return;
    const {ctx, chartArea: area} = chart;
    const at = (v) => chart.scales[options.axis].getPixelForValue(v);
    const across = options.axis === 'x';
    ctx.save();
    if (options.band && options.band.every(isNumber)) {
      const [lo, hi] = options.band.map(at);
      ctx.fillStyle = colour('chart-band');
      if (across)
        ctx.fillRect(lo, area.top, hi - lo, area.height);
      else
        ctx.fillRect(area.left, hi, area.width, lo - hi);
    }
    ctx.strokeStyle = colour('muted');
    ctx.lineWidth = 1.25;
    const p = at(options.value);
    if (across)
      strokeLine(ctx, p, area.top, p, area.bottom);
    else
      strokeLine(ctx, area.left, p, area.right, p);
    ctx.restore();
  },
};

// Text after the end of horizontal bars, and a diamond on them:
// options.plugins.marks = {ends: [value], texts: [text], diamonds: [value]}.
const marks = {
  id: 'marks',
  afterDatasetsDraw(chart, args, options) {
    if (!options.ends) return;
    const ctx = chart.ctx;
    const x = chart.scales.x;
    ctx.save();
    ctx.font = `12px ${Chart.defaults.font.family}`;
    ctx.textBaseline = 'middle';
    chart.getDatasetMeta(0).data.forEach((bar, i) => {
      const diamond = (options.diamonds || [])[i];
      if (isNumber(diamond)) {
        const at = x.getPixelForValue(diamond);
        ctx.beginPath();
        for (const [dx, dy] of [[0, -7], [7, 0], [0, 7], [-7, 0]]) ctx.lineTo(at + dx, bar.y + dy);
        ctx.closePath();
        ctx.fillStyle = colour('ink');
        ctx.fill();
        ctx.strokeStyle = colour('paper');
        ctx.stroke();
      }
      if (!isNumber(options.ends[i])) return;
      ctx.fillStyle = colour('ink');
      ctx.fillText(options.texts[i], x.getPixelForValue(options.ends[i]) + 10, bar.y);
    });
    ctx.restore();
  },
};

// Lets a test see that a canvas was drawn.
const drawn = {
  id: 'drawn',
  afterRender(chart) {
    chart.canvas.dataset.drawn = 'yes';
  },
};

Chart.register(errorBars, reference, marks, drawn);
Chart.defaults.animation = false;
Chart.defaults.maintainAspectRatio = false;
Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
Chart.defaults.plugins.legend.labels.boxWidth = 14;

function applyTheme() {
  Chart.defaults.color = colour('muted');
  Chart.defaults.borderColor = colour('chart-grid');
  Chart.defaults.plugins.legend.labels.color = colour('ink');
}

// ---- figures ----

// A table of strings; the first column is text, as in the C++ writers.
function table(header, rows) {
  const made = element('table');
  const head = made.createTHead().insertRow();
  for (const name of header) head.append(element('th', name));
  const body = made.createTBody();
  for (const row of rows) {
    const line = body.insertRow();
    row.forEach((cell, i) => line.append(element(i === 0 ? 'th' : 'td', cell)));
  }
  const scroll = element('div', undefined, 'scroll');
  scroll.append(made);
  return scroll;
}

function asDetails(summary, ...content) {
  const details = element('details');
  details.append(element('summary', summary), ...content);
  return details;
}

const charts = new Map();  // figure -> its charts

// Replaces what a figure shows. content: {plots: [{title, height, config}], header, rows, extra};
// `note`: a line under the table; `missing`: why there is nothing to draw, instead.
function show(id, {plots = [], header, rows, extra = [], note, missing}) {
  const figure = document.getElementById(id);
  for (const chart of charts.get(id) || []) chart.destroy();
  charts.set(id, []);
  const open = figure.querySelector('details.figures[open]') !== null;
  figure.querySelector('.content')?.remove();
  const content = element('div', undefined, 'content');
  figure.append(content);
  if (missing) {
    content.append(element('p', missing, 'note'));
    return;
  }
  const grid = element('div', undefined, 'plots');
  content.append(...extra.filter((e) => e.dataset.place === 'above'), grid);
  for (const plot of plots) {
    const box = element('div', undefined, 'plot');
    if (plot.title) box.append(element('h4', plot.title));
    const frame = element('div', undefined, 'canvas');
    frame.style.height = `${plot.height}px`;
    const canvas = element('canvas');
    canvas.setAttribute('role', 'img');
    canvas.setAttribute(
        'aria-label',
        `${figure.querySelector('h3').textContent}${plot.title ? ', ' + plot.title : ''}: ` +
            'the figures are in the table below');
    frame.append(canvas);
    box.append(frame);
    grid.append(box);
    charts.get(id).push(new Chart(canvas, plot.config));
  }
  content.append(...extra.filter((e) => e.dataset.place !== 'above'));
  const details = asDetails('The figures as a table', table(header, rows));
  details.className = 'figures';
  details.open = open;
  content.append(details);
  if (note) content.append(element('p', note, 'note'));
}

// A selector below the figure's caption, once; hidden where there is nothing to choose.
function selector(id, label, names, draw, first = 0) {
  const select = element('select');
  names.forEach((name, i) => {
    const option = element('option', name);
    option.value = String(i);
    select.append(option);
  });
  select.selectedIndex = first;
  select.addEventListener('change', () => draw(Number(select.value)));
  const box = element('label', label + ' ');
  box.append(select);
  const line = element('p', undefined, 'control');
  line.append(box);
  line.hidden = names.length < 2;
  document.getElementById(id).append(line);
  return () => Number(select.value || 0);
}
