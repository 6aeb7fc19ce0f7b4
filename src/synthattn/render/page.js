"use strict";
// Draws what needs a reader's choice: curves and attention. All else is in the page already. Texts of the data are put
// in as text only. A part that fails says so on <html data-errors> and leaves the others alone.
const data = JSON.parse(document.getElementById("data").textContent);
const root = document.documentElement;
root.dataset.errors = "";
addEventListener("error", (event) => { root.dataset.errors += event.message + "\n"; });

function attempt(draw) {
  try { draw(); } catch (error) { root.dataset.errors += (error.stack || error) + "\n"; }
}

const find = (selector, inside = document) => inside.querySelector(selector);

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}
const make = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);
const draw = (name, attributes = {}, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);

function digits(value, count = 3) {
  if (value === null || !Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  if (Math.abs(value) < 1e-4) return value.toExponential(1).replace("-", "−");
  const rounded = Number(value.toPrecision(count));
  const whole = Math.floor(Math.log10(Math.abs(rounded)));
  const places = Math.max(0, Math.min(8, count - 1 - whole));
  return rounded.toLocaleString("en-GB", { minimumFractionDigits: places, maximumFractionDigits: places }).replace("-", "−");
}
const percent = (share) => `${digits(100 * share, 2)} %`;
const where = (part) => `${part.stack} ${part.layer + 1}`;
const glyph = (variant) =>
  draw("svg", { class: `glyph ${variant.colour}`, viewBox: "-7 -7 14 14", "aria-hidden": "true" },
    draw("path", { d: variant.shape, stroke: "none" }));

// What is under the pointer or has the focus, in words.

const tip = find("#tip");
function showTip(text, x, y) {
  tip.textContent = text;
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - box.width - 4))}px`;
  tip.style.top = `${y + 18 + box.height > innerHeight ? Math.max(4, y - box.height - 12) : y + 18}px`;
}
const hideTip = () => { tip.hidden = true; };
function tips() {
  const tipped = (event) => event.target.closest && event.target.closest("[data-tip]");
  document.addEventListener("pointerover", (event) => {
    const element = tipped(event);
    if (element) showTip(element.dataset.tip, event.clientX, event.clientY);
  });
  document.addEventListener("pointerout", (event) => { if (tipped(event)) hideTip(); });
  document.addEventListener("focusin", (event) => {
    const element = tipped(event);
    if (!element || !element.matches(":focus-visible")) return;
    const box = element.getBoundingClientRect();
    showTip(element.dataset.tip, box.right, box.top);
  });
  document.addEventListener("focusout", hideTip);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });
  // A browser's own tip would be shown beside ours.
  for (const point of document.querySelectorAll("svg [data-tip]")) {
    find("title", point).remove();
    fill(point, { tabindex: 0, role: "img", "aria-label": point.dataset.tip.replaceAll("\n", ", ") }, []);
  }
}

// Heads of the table sort it: first with the largest at the top, then with the smallest.

function sorting() {
  const table = find("#table table");
  const body = find("tbody", table);
  const given = [...body.rows];
  const keys = new Map(given.map((row) => [row, JSON.parse(row.dataset.keys)]));
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = make("button", { type: "button", onclick: () => {
      const next = { none: "descending", descending: "ascending", ascending: null }[head.getAttribute("aria-sort") || "none"];
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      if (next) head.setAttribute("aria-sort", next);
      const sign = next === "ascending" ? 1 : -1;
      const compare = (one, other) => {
        const [a, b] = [keys.get(one)[column], keys.get(other)[column]];
        // What has no number stays below.
        if (a === null || b === null) return (a === null) - (b === null);
        return sign * (typeof a === "string" ? b.localeCompare(a) : a - b);
      };
      body.append(...(next ? [...given].sort(compare) : given));
    } });
    button.append(...head.childNodes);
    head.append(button);
  });
}

function theme() {
  const button = find("#theme");
  const choices = ["auto", "light", "dark"];
  // Some browsers keep nothing for files.
  const stored = () => { try { return localStorage.getItem("synthattn-theme"); } catch { return null; } };
  const set = (choice) => {
    if (choice === "auto") delete root.dataset.theme; else root.dataset.theme = choice;
    button.textContent = `Theme: ${choice}`;
    try { localStorage.setItem("synthattn-theme", choice); } catch { /* then it is forgotten */ }
  };
  let now = choices.includes(stored()) ? stored() : "auto";
  button.hidden = false;
  button.addEventListener("click", () => { now = choices[(choices.indexOf(now) + 1) % 3]; set(now); });
  set(now);
}

function copying() {
  const button = find("#copy");
  if (!button) return;
  button.hidden = false;
  button.addEventListener("click", async () => {
    const command = find("#command");
    try {
      await navigator.clipboard.writeText(command.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(command);
      button.textContent = "Selected: press Ctrl+C";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2500);
  });
}

// Learning curves.

function ticks(low, high, log, count) {
  if (log) {
    const every = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
      for (const factor of high / low < 8 ? [1, 1.5, 2, 3, 4, 5, 6, 8] : [1, 2, 5]) every.push(factor * 10 ** power);
    }
    return every.filter((value) => value >= low && value <= high);
  }
  const rough = (high - low || 1) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= rough);
  const found = [];
  for (let n = Math.ceil(low / step); n * step <= high; n++) found.push(Number((n * step).toPrecision(12)));
  return found;
}

function curves(holder, title, series) {
  holder.replaceChildren(make("figcaption", {}, title));
  const points = series.flatMap((each) => each.points);
  if (!points.length) { holder.append(make("p", { class: "note" }, "nothing chosen")); return; }
  const [width, height, left, right, top, bottom] = [holder.clientWidth || 340, 280, 44, 14, 10, 26];
  const last = Math.max(...points.map((point) => point[0]));
  // The first steps fall from so high that they would leave no room for what differs later: they come in from above.
  const later = points.filter((point) => point[0] >= 0.1 * last).map((point) => point[1]);
  const [least, most] = [Math.min(...points.map((point) => point[1])), Math.max(...later)];
  const log = least > 0 && most / least > 3;
  const scale = log ? Math.log : (value) => value;
  const margin = (scale(most) - scale(least) || 1) * 0.04;
  const [low, high] = [scale(least) - margin, scale(most) + margin];
  const x = (step) => left + step / (last || 1) * (width - left - right);
  const y = (loss) => height - bottom - (scale(loss) - low) / (high - low) * (height - top - bottom);
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, "font-size": 12, tabindex: 0, role: "img", width, height,
    "aria-label": `${title}. ` + series.map((each) => `${each.variant.attention} ends at ${digits(each.points.at(-1)[1])}`).join(", ") });
  const undo = log ? Math.exp : (value) => value;
  for (const value of ticks(undo(low), undo(high), log, 5)) {
    svg.append(draw("line", { class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value) }),
      draw("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, String(Number(value.toPrecision(3)))));
  }
  for (const step of ticks(0, last, false, width / 110)) {
    svg.append(draw("text", { x: x(step), y: height - 6, "text-anchor": "middle" }, step.toLocaleString("en-GB")));
  }
  // An inner svg cuts off what is outside of it.
  const inner = draw("svg", { x: 0, y: top, width, height: height - top - bottom, viewBox: `0 ${top} ${width} ${height - top - bottom}` });
  svg.append(inner);
  for (const { variant, points: path } of series) {
    inner.append(draw("path", { class: `line ${variant.colour}`, style: "fill: none", "stroke-dasharray": variant.dash || null,
      d: path.map(([step, loss], n) => `${n ? "L" : "M"}${x(step).toFixed(1)},${y(loss).toFixed(1)}`).join("") }),
      draw("path", { class: variant.colour, stroke: "none", d: variant.shape, transform: `translate(${x(path.at(-1)[0])} ${y(path.at(-1)[1])})` }));
  }
  const cross = draw("line", { y1: top, y2: height - bottom, visibility: "hidden" });
  svg.append(cross);
  const steps = [...new Set(points.map((point) => point[0]))].sort((a, b) => a - b);
  const nearest = (list, step, of) => list.reduce((best, each) => Math.abs(of(each) - step) < Math.abs(of(best) - step) ? each : best);
  let at = steps.length - 1;
  const show = (clientX, clientY) => {
    fill(cross, { x1: x(steps[at]), x2: x(steps[at]), visibility: "visible" }, []);
    const values = series.map((each) => [nearest(each.points, steps[at], (point) => point[0])[1], each.variant.attention]);
    const lines = values.sort((a, b) => a[0] - b[0]).map(([loss, name]) => `${digits(loss, 4)}  ${name}`);
    showTip([`step ${Math.round(steps[at]).toLocaleString("en-GB")}`, ...lines].join("\n"), clientX, clientY);
  };
  const byKey = () => { const box = svg.getBoundingClientRect(); show(box.left + x(steps[at]) * box.width / width, box.top + 30); };
  const leave = () => { cross.setAttribute("visibility", "hidden"); hideTip(); };
  fill(svg, {
    onpointermove: (event) => {
      const box = svg.getBoundingClientRect();
      const step = ((event.clientX - box.left) * width / box.width - left) / (width - left - right) * last;
      at = steps.indexOf(nearest(steps, step, (each) => each));
      show(event.clientX, event.clientY);
    },
    onpointerleave: leave,
    onblur: leave,
    onkeydown: (event) => {
      const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!move) return;
      event.preventDefault();
      at = Math.max(0, Math.min(steps.length - 1, at + move));
      byKey();
    },
  }, []);
  holder.append(svg);
  find("figcaption", holder).textContent = title + (log ? ", logarithmic" : "");
}

function learning() {
  const place = find("#learning .drawn");
  if (!place) return;
  const kinds = [["Validation loss by step", "validation_curve"], ["Training loss by step", "loss_curve"]]
    .filter(([, kind]) => data.variants.some((variant) => variant[kind].length));
  const drawn = data.variants.filter((variant) => kinds.some(([, kind]) => variant[kind].length));
  const figures = kinds.map(() => make("figure"));
  const chosen = new Set(drawn);
  const all = () => kinds.forEach(([title, kind], n) => curves(figures[n], title,
    drawn.filter((variant) => chosen.has(variant) && variant[kind].length).map((variant) => ({ variant, points: variant[kind] }))));
  place.append(make("fieldset", {}, make("legend", {}, "Shown"), ...drawn.map((variant) => make("label", { class: "chip" },
    make("input", { type: "checkbox", checked: "", onchange: (event) => {
      if (event.target.checked) chosen.add(variant); else chosen.delete(variant);
      all();
    } }), glyph(variant), variant.attention))), make("div", { class: "plots" }, ...figures));
  all();
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; all(); } });
}

// Attention: maps, histograms, entropies, mixtures of the variant that is chosen.

const VIRIDIS = ["440154", "482475", "414487", "355f8d", "2a788e", "21918c", "22a884", "44bf70", "7ad151", "bddf26", "fde725"]
  .map((hex) => [0, 2, 4].map((n) => parseInt(hex.slice(n, n + 2), 16)));
const PALETTE = Array.from({ length: 256 }, (_, byte) => {
  const at = byte / 255 * (VIRIDIS.length - 1);
  const [one, other] = [VIRIDIS[Math.floor(at)], VIRIDIS[Math.ceil(at)]];
  return one.map((channel, n) => Math.round(channel + (other[n] - channel) * (at % 1)));
});

function paint(canvas, bytes, size) {
  canvas.width = canvas.height = size;
  const image = new ImageData(size, size);
  for (let n = 0; n < size * size; n++) image.data.set([...PALETTE[bytes[n] || 0], 255], 4 * n);
  canvas.getContext("2d").putImageData(image, 0, 0);
}

function positions(cell, layer) {
  const [first, last] = [Math.ceil(cell * layer.span / layer.size), Math.ceil((cell + 1) * layer.span / layer.size) - 1];
  return last > first ? `${first + 1}–${last + 1}` : `${first + 1}`;
}

function maps(layers) {
  const big = make("canvas", { tabindex: 0, role: "img", "aria-describedby": "readout" });
  const cell = make("div", { class: "cell", hidden: "" });
  const readout = make("p", { class: "readout", id: "readout", "aria-live": "polite" });
  const most = make("span");
  let [now, row, column] = [null, 0, 0];
  const point = () => {
    const { layer, bytes, peak } = now;
    const share = 100 / layer.size;
    cell.hidden = false;
    cell.style.cssText = `left:${column * share}%;top:${row * share}%;width:${share}%;height:${share}%`;
    readout.textContent = `From position ${positions(row, layer)} to position ${positions(column, layer)}: `
      + `${digits((bytes[row * layer.size + column] || 0) / 255 * peak)}`;
  };
  const choose = (button, layer, head, bytes) => {
    const peak = layer.peaks[head];
    now = { layer, bytes, peak };
    for (const other of grid.querySelectorAll("[aria-pressed=true]")) other.setAttribute("aria-pressed", "false");
    button.setAttribute("aria-pressed", "true");
    paint(big, bytes, layer.size);
    cell.hidden = true;
    [row, column] = [0, 0];
    const name = `${layer.stack}, layer ${layer.layer + 1}, head ${head + 1}`;
    big.setAttribute("aria-label", `Attention of ${name}; arrow keys move through its cells`);
    caption.textContent = `${name[0].toUpperCase()}${name.slice(1)}; rows look at columns`;
    most.textContent = digits(peak);
    readout.textContent = "Point at a cell, or move with the arrow keys.";
  };
  const caption = make("figcaption");
  fill(big, {
    onpointermove: (event) => {
      const place = (offset, full) => Math.max(0, Math.min(now.layer.size - 1, Math.floor(offset / full * now.layer.size)));
      [row, column] = [place(event.offsetY, big.clientHeight), place(event.offsetX, big.clientWidth)];
      point();
    },
    onkeydown: (event) => {
      const [down, right] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] || [0, 0];
      if (!down && !right) return;
      event.preventDefault();
      const inside = (place) => Math.max(0, Math.min(now.layer.size - 1, place));
      [row, column] = [inside(row + down), inside(column + right)];
      point();
    },
    onfocus: () => { if (big.matches(":focus-visible")) point(); },
  }, []);
  big.addEventListener("pointerdown", (event) => big.dispatchEvent(new PointerEvent("pointermove", event)));
  const widest = Math.max(...layers.map((layer) => layer.maps.length));
  const rows = layers.map((layer) => make("tr", {}, make("th", { scope: "row" }, where(layer)), ...layer.maps.map((map, head) => {
    const bytes = Uint8Array.from(atob(map), (letter) => letter.charCodeAt(0));
    const canvas = make("canvas", { "aria-hidden": "true" });
    paint(canvas, bytes, layer.size);
    const label = `${where(layer)}, head ${head + 1}, largest weight ${digits(layer.peaks[head])}`;
    const button = make("button", { type: "button", "aria-pressed": "false", "aria-label": label, "data-tip": label,
      onclick: () => choose(button, layer, head, bytes) }, canvas);
    return make("td", {}, button, digits(layer.peaks[head], 2));
  })));
  const heads = Array.from({ length: widest }, (_, head) => make("th", { scope: "col" }, `head ${head + 1}`));
  const grid = make("div", { class: "heads", tabindex: 0, role: "group", "aria-label": "All layers and heads" },
    make("table", {}, make("thead", {}, make("tr", {}, make("td"), ...heads)), make("tbody", {}, ...rows)));
  const ramp = make("div", { class: "ramp", style: `background:linear-gradient(to right,${VIRIDIS.map((rgb) => `rgb(${rgb})`)})` });
  const place = make("div", { class: "maps" }, make("figure", { class: "big" }, caption,
    make("div", { class: "frame" }, big, cell), ramp, make("div", { class: "ends" }, make("span", {}, "0"), most), readout), grid);
  find("button", grid).click();
  return place;
}

const power = (exponent) => `10${String(exponent).replace(/./g, (sign) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(sign)])}`;

function histogram(own, base, highest) {
  const [width, height, bottom] = [220, 104, 20];
  const [first, last] = [own.edges[0], own.edges.at(-1)];
  const x = (edge) => 6 + (edge - first) / (last - first) * (width - 12);
  const y = (share) => height - bottom - share / highest * (height - bottom - 6);
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height, "font-size": 11, role: "img",
    "aria-label": `Attention weights of ${where(own)}` });
  own.counts.forEach((share, n) => svg.append(draw("rect", { class: "bin", x: x(own.edges[n]), y: y(share),
    width: Math.max(0.5, x(own.edges[n + 1]) - x(own.edges[n]) - 0.6), height: height - bottom - y(share),
    // Smaller ones are counted in the first.
    "data-tip": `weights ${n ? `from ${digits(10 ** own.edges[n], 2)} ` : ""}up to ${digits(10 ** own.edges[n + 1], 2)}: ${percent(share)}` })));
  if (base) {
    const inside = Math.max(...base.counts) > 0;
    const steps = base.counts.map((share, n) => `V${y(Math.min(share, highest))}H${x(base.edges[n + 1])}`);
    if (inside) svg.append(draw("path", { class: "outline", d: `M${x(base.edges[0])},${y(0)}${steps.join("")}V${y(0)}` }));
  }
  svg.append(draw("line", { x1: 6, x2: width - 6, y1: height - bottom, y2: height - bottom }));
  for (const edge of ticks(first, last, false, 4).filter(Number.isInteger)) {
    svg.append(draw("text", { x: x(edge), y: height - 5, "text-anchor": "middle" }, edge ? power(edge) : "1"));
  }
  return make("figure", {}, make("figcaption", {}, where(own)), svg);
}

function heat(title, layers, of) {
  const widest = Math.max(...layers.map((layer) => of(layer).length));
  const top = Math.max(1, ...layers.flatMap(of));
  const heads = Array.from({ length: widest }, (_, head) => make("th", { scope: "col" }, widest > 1 ? `${head + 1}` : "all heads"));
  return make("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": title }, make("table", { class: "heat" },
    make("caption", {}, title), make("thead", {}, make("tr", {}, make("td"), ...heads)),
    make("tbody", {}, ...layers.map((layer) => make("tr", {}, make("th", { scope: "row" }, where(layer)),
      ...of(layer).map((value) => make("td", { style: `--share:${Math.max(0, value) / top}` }, value.toFixed(2).replace("-", "−"))))))));
}

function attention() {
  const place = find("#attention .drawn");
  if (!place) return;
  const shown = data.variants.filter((variant) => variant.heads.length || variant.histograms.length || variant.mixture.length);
  const base = data.variants.find((variant) => variant.attention === data.baseline);
  const drawn = make("div");
  const change = (variant) => attempt(() => {
    drawn.replaceChildren();
    const layers = variant.heads.filter((layer) => layer.maps.length);
    if (layers.length) {
      drawn.append(make("h3", {}, "Maps"), make("p", { class: "note" },
        "Each head has its own scale, from 0 to its largest weight, which is the number below it. Choose one to read it."
        + (layers.length < variant.heads.length ? " Some layers are left out, to keep the page small." : "")), maps(layers));
    }
    if (variant.histograms.length) {
      const others = base && base !== variant ? base.histograms : [];
      const pair = (own) => others.find((other) => other.stack === own.stack && other.layer === own.layer);
      const highest = Math.max(1e-9, ...[...variant.histograms, ...others].flatMap((each) => each.counts));
      drawn.append(make("h3", {}, "How large the weights are"), make("p", { class: "note" },
        "Shares of all weights of a layer, by size, on a logarithmic axis" + (others.length ? `; the line is ${data.baseline}.` : ".")),
      make("div", { class: "panels" }, ...variant.histograms.map((own) => histogram(own, pair(own), highest))));
    }
    const measured = variant.heads.filter((layer) => layer.entropy.length);
    if (measured.length) {
      drawn.append(make("h3", {}, "How spread the weights are"), make("p", { class: "note" },
        "Entropy by layer and head, divided by that of even weights: 0 is one token, 1 is all alike."),
      heat("Entropy by head", measured, (layer) => layer.entropy));
    }
    if (variant.mixture.length) {
      const terms = [...new Set(variant.mixture.flatMap((layer) => layer.terms))];
      drawn.append(make("h3", {}, "What the mixture weighs"), make("div", { class: "heats" }, ...terms.map((term) =>
        heat(`${term}, by head`, variant.mixture.filter((layer) => layer.terms.includes(term)), (layer) => layer.weights[layer.terms.indexOf(term)]))));
    }
  });
  const chooser = make("select", { id: "chooser", onchange: () => change(shown[chooser.selectedIndex]) },
    ...shown.map((variant) => make("option", {}, variant.attention)));
  place.append(make("label", {}, "Attention ", chooser), drawn);
  change(shown[0]);
}

for (const part of [theme, tips, sorting, copying, learning, attention]) attempt(part);
addEventListener("beforeprint", () => { for (const each of document.querySelectorAll("details")) each.open = true; });
root.dataset.ready = "true";
