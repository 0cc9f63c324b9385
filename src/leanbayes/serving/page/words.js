// What the numbers mean, in words.
function drawUncertainty(answer) {
  const first = (value) => (Array.isArray(value) ? value[0] : value);
  const parts = ["aleatoric", "epistemic"].map((name) => Math.max(0, first(answer[name])));
  const total = first(answer.total);
  const classes = answer.task === "classes";
  const most = classes ? Math.log(answer.classes.length) : parts[0] + parts[1] || 1;
  document.querySelectorAll(".stack i").forEach((bar, at) => {
    bar.style.width = percent(Math.min(1, parts[at] / most));
  });
  $("is-total").textContent = classes
    ? `${total.toFixed(3)} nats (at most ${most.toFixed(2)})`
    : `${short(total)} (std ${short(first(answer.std))})`;
  const shown = classes ? (x) => x.toFixed(3) : short;
  $("is-aleatoric").textContent = shown(parts[0]);
  $("is-epistemic").textContent = shown(parts[1]);
  $("meaning").textContent = meaning(answer, total / most, parts[1] / (parts[0] + parts[1] || 1));
}

function meaning(answer, share, epistemic) {
  if (!info.random) {
    return "One network without draws: it shows how ambiguous the input looks, not what it does not know.";
  }
  if (answer.samples === 1) {
    return "One draw cannot disagree with itself: move the slider to see what the network does not know.";
  }
  if (answer.task === "classes" && share < 0.05) {
    return "Hardly any uncertainty: the draws agree, and on one class.";
  }
  if (epistemic > 0.4) {
    return "Mostly epistemic: the draws disagree. This is unlike what the network has learnt, and more data of its kind would help.";
  }
  if (epistemic > 0.1) {
    return "Of both kinds: the input is ambiguous (aleatoric), and the draws disagree on how (epistemic).";
  }
  return answer.task === "classes"
    ? "Mostly aleatoric: the draws agree, by and large, that more than one class fits. More data would not change that."
    : "Mostly aleatoric: the draws agree, the rest is noise of the data.";
}

function drawHeadline(answer) {
  const line = $("headline");
  line.classList.remove("soft");
  if (answer.task === "classes") {
    line.textContent = answer.label + " ";
    line.append(element("small", "", `${(100 * answer.confidence).toFixed(1)} %`));
    return;
  }
  line.textContent = answer.mean.map((x, at) => `${short(x)} \u00b1 ${short(answer.std[at])}`).join(", ") + " ";
  const covered = answer.calibration && answer.calibration.coverage;
  const level = Math.round(100 * (covered ?? 0.95));
  line.append(element("small", "", `${level} %: ${short(answer.low[0])} to ${short(answer.high[0])}`));
}

function drawCalibration(answer) {
  const known = answer.calibration, note = $("calibrated");
  note.hidden = !known;
  if (!known) return;
  const words = ["Calibrated after training."];
  if (known.temperature !== null) {
    words.push(`Temperature ${known.temperature.toFixed(3)}: bars are scaled by it, the draws are shown as drawn.`);
  }
  if (known.coverage !== null) {
    const level = `${Math.round(1000 * known.coverage) / 10} %`;
    const held = answer.set && (answer.set.join(", ") || "empty");
    words.push(answer.set ? `The conformal set (${level}): ${held}.` : `The interval covers ${level} of the targets.`);
    if (!known.guaranteed) words.push("The guarantee is for the samples and draws of the calibration; these are others.");
  }
  note.textContent = words.join(" ");
}

function say(answer, milliseconds) {
  const share = (x) => Math.round(100 * x);
  const best = answer.task === "classes"
    ? `${answer.label}, ${share(answer.confidence)} per cent.`
    : `${short(answer.mean[0])}, plus or minus ${short(answer.std[0])}.`;
  $("said").textContent = `${best} ${$("meaning").textContent}`;
  $("chart").setAttribute("aria-label", describe(answer));
  const samples = answer.samples === 1 ? "1 sample" : `${answer.samples} samples`;
  $("figures").textContent =
    `${samples}, answered in ${answer.milliseconds.toFixed(1)} ms (${Math.round(milliseconds)} ms round trip).`;
}

function describe(answer) {
  if (answer.task !== "classes") return `Mean ${short(answer.mean[0])} with its interval and draws`;
  const parts = chosen(answer).map((at) => {
    const [low, high] = ["0.05", "0.95"].map((level) => (100 * answer.spread[level][at]).toFixed(1));
    return `${answer.classes[at]} ${(100 * answer.probabilities[at]).toFixed(1)} % (draws ${low} to ${high})`;
  });
  return parts.join("; ");
}
