// Numbers instead of an image: fields by column, or a text of numbers.
const fields = (() => {
  const form = $("fields"), area = $("area");
  if (!form && !area) return null;
  let changed = () => {};
  const boxes = form ? [...form.querySelectorAll("input, select")] : [area];
  boxes.forEach((box) => box.addEventListener("input", () => changed()));
  if (form) form.addEventListener("submit", (event) => event.preventDefault());

  function columns() {
    const cells = {};
    for (const box of boxes) {
      cells[box.dataset.name] = box.tagName === "SELECT" ? box.value : Number(box.value);
    }
    return { columns: cells };
  }

  function body() {
    if (form) {
      if (boxes.some((box) => box.value === "")) return null;
      const numbers = () => ({ inputs: boxes.map((box) => Number(box.value)) });
      return JSON.stringify(info.input.columns.length ? columns() : numbers());
    }
    const text = area.value.trim();
    if (!text) return null;
    if (text.startsWith("[")) return `{"inputs": ${text}}`;
    return JSON.stringify({ inputs: text.split(/[\s,;]+/).map(Number) });
  }

  return { body, watch: (call) => { changed = call; } };
})();
