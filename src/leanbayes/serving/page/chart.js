// Bars with the draws on them. Positions are per cent of the width, so nothing depends on its size.
const SHOWN = 12;

function shape(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function element(name, className, words) {
  const made = document.createElement(name);
  made.className = className;
  made.textContent = words;
  return made;
}

// Dots side by side would hide each other: the golden ratio spreads them over the height.
const height = (at) => 5 + 16 * ((at * 0.618034) % 1);

function track(parts) {
  const svg = shape("svg", { "aria-hidden": "true" });
  svg.append(shape("rect", { class: "ground", x: 0, y: 2, width: "100%", height: 22, rx: 3 }));
  svg.append(shape("rect", { class: "fill", x: parts.from, y: 2, width: parts.wide, height: 22, rx: 3 }));
  parts.dots.forEach((x, at) => {
    svg.append(shape("circle", { class: "draw", cx: x, cy: height(at), r: 2.1 }));
  });
  const line = (x1, x2, y1, y2, kind) => svg.append(shape("line", { class: kind, x1, x2, y1, y2 }));
  line(parts.low, parts.high, 13, 13, "whisker");
  line(parts.low, parts.low, 9, 17, "whisker");
  line(parts.high, parts.high, 9, 17, "whisker");
  line(parts.middle, parts.middle, 5, 21, "median");
  if (parts.held) {
    svg.append(shape("rect", { class: "held-mark", x: 0, y: 1, width: "100%", height: 24, rx: 4 }));
  }
  return svg;
}

function row(name, svg, value, best) {
  const made = element("div", best ? "bar-row best" : "bar-row", "");
  made.append(element("span", "name", name), svg, element("span", "value", value));
  return made;
}

const percent = (p) => `${100 * p}%`;

function axis(words) {
  const made = element("div", "axis", "");
  made.append(...words.map((each) => element("span", "", each)));
  return made;
}

// Few classes keep their order, so that they stand still while samples change.
function chosen(answer) {
  const all = answer.probabilities.map((_, at) => at);
  if (all.length <= SHOWN) return all;
  return all.sort((a, b) => answer.probabilities[b] - answer.probabilities[a]).slice(0, SHOWN);
}

function drawClasses(answer) {
  const draws = new Map((answer.draws || []).map((each) => [each.index, each.values]));
  const spread = answer.spread;
  const rows = chosen(answer).map((at) => {
    const parts = {
      from: 0,
      wide: percent(answer.probabilities[at]),
      dots: info.random ? (draws.get(at) || []).map(percent) : [],
      low: percent(spread["0.05"][at]),
      middle: percent(spread["0.5"][at]),
      high: percent(spread["0.95"][at]),
      held: answer.set && answer.set.includes(answer.classes[at]),
    };
    const value = `${(100 * answer.probabilities[at]).toFixed(1)} %`;
    return row(answer.classes[at], track(parts), value, at === answer.index);
  });
  $("chart").replaceChildren(...rows, axis(["0", "50 %", "100 %"]));
}

function drawNumbers(answer) {
  const draws = new Map((answer.draws || []).map((each) => [each.index, each.values]));
  const rows = [];
  answer.mean.slice(0, SHOWN).forEach((mean, at) => {
    const dots = draws.get(at) || [];
    const ends = [...dots, answer.low[at] ?? mean, answer.high[at] ?? mean];
    const low = Math.min(...ends), high = Math.max(...ends);
    const room = (high - low) * 0.06 || 1;
    const left = low - room, width = high - low + 2 * room;
    const place = (x) => percent((x - left) / width);
    const from = answer.low[at] ?? left, to = answer.high[at] ?? left + width;
    const parts = {
      from: place(from),
      wide: percent((to - from) / width),
      dots: info.random ? dots.map(place) : [],
      low: place(answer.spread["0.05"][at]),
      middle: place(mean),
      high: place(answer.spread["0.95"][at]),
    };
    const name = answer.mean.length > 1 ? `target ${at + 1}` : "mean";
    rows.push(row(name, track(parts), short(mean), false), axis([short(left), short(left + width)]));
  });
  $("chart").replaceChildren(...rows);
}

function short(value) {
  if (value === null) return "unbounded";
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e6 || size < 1e-3)) return value.toExponential(2);
  return String(Number(value.toPrecision(4)));
}
