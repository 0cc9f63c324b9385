// The stage: an image and strokes over it. `stage.body()` gives the bytes to send.
const stage = (() => {
  const canvas = $("stage");
  if (!canvas) return null;
  const pen = canvas.getContext("2d");
  const direct = ["image/png", "image/jpeg", "image/webp"]; // sent as they are
  let strokes = [];
  let picture = null; // what was dropped, decoded, and its file
  let current = null;
  let changed = () => {};

  function draw() {
    pen.globalCompositeOperation = "source-over";
    pen.fillStyle = "#000";
    pen.fillRect(0, 0, canvas.width, canvas.height);
    if (picture) cover(picture.image);
    strokes.forEach(trace);
    if ($("invert").checked) {
      pen.globalCompositeOperation = "difference";
      pen.fillStyle = "#fff";
      pen.fillRect(0, 0, canvas.width, canvas.height);
    }
    $("hint").hidden = Boolean(picture || strokes.length);
    preview();
  }

  // The middle of an image, as large as it fits: what the server cuts out too.
  function cover(image) {
    const scale = Math.max(canvas.width / image.width, canvas.height / image.height);
    const width = image.width * scale, height = image.height * scale;
    pen.imageSmoothingQuality = "high";
    pen.drawImage(image, (canvas.width - width) / 2, (canvas.height - height) / 2, width, height);
  }

  function trace(stroke) {
    pen.lineWidth = stroke.width;
    pen.lineCap = pen.lineJoin = "round";
    pen.strokeStyle = pen.fillStyle = stroke.colour;
    pen.beginPath();
    stroke.points.forEach(([x, y], at) => (at ? pen.lineTo(x, y) : pen.moveTo(x, y)));
    if (stroke.points.length === 1) pen.lineTo(...stroke.points[0]);
    pen.stroke();
    if (stroke.filled) pen.fill();
  }

  function preview() {
    const seen = $("seen"), small = seen.getContext("2d", { willReadFrequently: true });
    small.imageSmoothingQuality = "high";
    small.drawImage(canvas, 0, 0, seen.width, seen.height);
    if (info.input.shape[0] !== 1) return;
    const pixels = small.getImageData(0, 0, seen.width, seen.height), data = pixels.data;
    for (let at = 0; at < data.length; at += 4) {
      const grey = 0.299 * data[at] + 0.587 * data[at + 1] + 0.114 * data[at + 2];
      data[at] = data[at + 1] = data[at + 2] = grey;
    }
    small.putImageData(pixels, 0, 0);
  }

  function place(event) {
    const box = canvas.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * canvas.width;
    const y = ((event.clientY - box.top) / box.height) * canvas.height;
    return [x, y];
  }

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    canvas.setPointerCapture(event.pointerId);
    const colour = $("colour") ? $("colour").value : "#fff";
    const filled = $("fill").checked;
    current = { points: [place(event)], width: Number($("pen").value), colour, filled };
    strokes.push(current);
    draw();
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!current) return;
    current.points.push(place(event));
    draw();
  });
  for (const end of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(end, () => {
      if (current) changed();
      current = null;
    });
  }
  $("undo").addEventListener("click", () => {
    if (strokes.length) strokes.pop();
    else picture = null;
    draw();
    changed();
  });
  $("clear").addEventListener("click", () => {
    strokes = [];
    picture = null;
    draw();
    changed();
  });
  $("invert").addEventListener("change", () => {
    draw();
    changed();
  });

  async function take(file) {
    try {
      const image = await createImageBitmap(file);
      picture = { image, file };
      strokes = [];
      draw();
      changed();
    } catch (error) {
      changed("This file cannot be read as an image.");
    }
  }
  $("file").addEventListener("change", () => {
    if ($("file").files.length) take($("file").files[0]);
    $("file").value = "";
  });
  const zone = $("drop");
  addEventListener("dragover", (event) => {
    event.preventDefault();
    zone.classList.add("over");
  });
  addEventListener("dragleave", () => zone.classList.remove("over"));
  addEventListener("drop", (event) => {
    event.preventDefault();
    zone.classList.remove("over");
    if (event.dataTransfer.files.length) take(event.dataTransfer.files[0]);
  });
  addEventListener("paste", (event) => {
    if (event.clipboardData.files.length) take(event.clipboardData.files[0]);
  });

  function body() {
    if (!picture && !strokes.length) return null;
    const file = picture && picture.file;
    const whole = file && !strokes.length && !$("invert").checked;
    const small = whole && file.size <= info.limits.upload;
    const pixels = whole && picture.image.width * picture.image.height <= info.limits.pixels;
    if (small && pixels && direct.includes(file.type)) return file;
    return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  }

  draw();
  return { body, watch: (call) => { changed = call; } };
})();
