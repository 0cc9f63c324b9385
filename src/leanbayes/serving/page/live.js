// Ask the server whenever input, samples or draws change; only the newest answer is shown.
(() => {
  const source = stage || fields;
  let seed = null, timer = 0, running = null;

  async function ask() {
    const body = await source.body();
    if (running) running.abort();
    if (body === null) return empty();
    const own = (running = new AbortController());
    const query = new URLSearchParams({ samples: $("samples").value, draws: "1" });
    if (seed !== null) query.set("seed", seed);
    $("answer").classList.add("waiting");
    const start = performance.now();
    try {
      const reply = await fetch(`/predict?${query}`, { method: "POST", body, signal: own.signal });
      const found = await reply.json();
      if (reply.ok) show(found, performance.now() - start);
      else wrong(`${found.error}. Expected: ${found.expected}.`);
    } catch (error) {
      if (error.name === "AbortError") return;
      wrong("The server does not answer. Is it still running?");
    }
    if (running === own) $("answer").classList.remove("waiting");
  }

  function show(answer, milliseconds) {
    wrong("");
    $("answer").classList.remove("empty");
    drawHeadline(answer);
    if (answer.task === "classes") drawClasses(answer);
    else drawNumbers(answer);
    drawUncertainty(answer);
    drawCalibration(answer);
    say(answer, milliseconds);
  }

  function empty() {
    $("answer").classList.remove("waiting");
    $("answer").classList.add("empty");
    $("headline").textContent = "Nothing to predict yet";
    $("headline").classList.add("soft");
    $("chart").replaceChildren();
    for (const name of ["meaning", "figures", "said"]) $(name).textContent = "";
    $("calibrated").hidden = true;
  }

  function wrong(words) {
    $("wrong").hidden = !words;
    $("wrong").textContent = words;
  }

  function soon(delay) {
    clearTimeout(timer);
    timer = setTimeout(ask, delay);
  }

  source.watch((words) => (words ? wrong(words) : soon(source === stage ? 0 : 250)));
  $("samples").addEventListener("input", () => {
    $("samples-shown").textContent = $("samples").value;
    soon(60);
  });
  $("again").addEventListener("click", () => {
    seed = Math.floor(Math.random() * 2 ** 31);
    soon(0);
  });
  if (source === fields) soon(0);
})();
