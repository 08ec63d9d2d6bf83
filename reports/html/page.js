// Selectors, and when to draw: at the start, and again for another width, theme or paper.

const evaluatorAt = selector('fig-pareto', 'Evaluator', evaluators, drawPareto);
const partsAt = selector('fig-parts', 'Parts of', partSets, drawParts);
const sweepAt = selector('fig-sweep', 'Sweep', data.sweeps.map(sweepName), drawSweep);
const firstDraft = Math.max(0, data.timelines.findIndex((t) => methods.includes(t.arm)));
const timelineAt =
    selector('fig-timeline', 'Arm', data.timelines.map((t) => t.arm), drawTimeline, firstDraft);

function drawForDataset() {
  drawSpeedup();
  drawWhy();
  drawAcceptance();
  drawPareto(evaluatorAt());
  drawBatches();
}
function drawAll() {
  applyTheme();
  drawForDataset();
  drawDatasets();
  drawParts(partsAt());
  drawSweep(sweepAt());
  drawCost();
  drawTimeline(timelineAt());
}

const choice = document.getElementById('dataset');
for (const name of data.datasets) {
  const option = element('option', name === 'all' ? 'all data sets' : name);
  option.value = name;
  choice.append(option);
}
choice.value = dataset;
choice.addEventListener('change', () => {
  dataset = choice.value;
  drawForDataset();
});
document.getElementById('dataset-control').hidden = data.datasets.length < 2;

if (kBatches.length > 1) {
  const sizes = document.getElementById('batch');
  for (const size of kBatches) {
    const option = element('option', String(size));
    option.value = String(size);
    sizes.append(option);
  }
  sizes.addEventListener('change', () => {
    batch = Number(sizes.value);
    drawForDataset();
    drawDatasets();
    drawParts(partsAt());
  });
  document.getElementById('batch-control').hidden = false;
}

drawAll();
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', drawAll);
matchMedia('(max-width: 559px)').addEventListener('change', drawAll);
// Paper is white and cannot be clicked: light colours, and every table of results open.
for (const [event, printing] of [['beforeprint', true], ['afterprint', false]])
  addEventListener(event, () => {
    document.documentElement.classList.toggle('printing', printing);
    for (const part of document.querySelectorAll('.part-table')) {
      if (printing) part.dataset.open = part.open;
      part.open = printing || part.dataset.open === 'true';
    }
    drawAll();
  });
