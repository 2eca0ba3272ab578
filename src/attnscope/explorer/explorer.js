// The explorer: edit attention and watch the output, with the audit's verdict beside it.
//
// One module without imports, written to the AFM interface (render({model, el}) with get, set, on, off, save_changes and
// send). It touches `el` only. Token strings are set as textContent and are never parsed as HTML.

const STYLE = `
.axp { --page: #fafaf8; --card: #ffffff; --ink: #1f2328; --quiet: #59606a; --line: #d9dde2; --link: #0b5cad; --soft: #eef0f3;
  --own: #767d87; --ghost: #cdd3da; --mine: #5e3c99; --mine-soft: #e9e2f5; --plus: #0072b2; --minus: #b84a00;
  --yes: #0b6e4f; --no: #b3261e; --care: #7a5a00; --yes-back: #e5f4ee; --no-back: #fbe9e7; --care-back: #fdf3d8;
  container-type: inline-size; color: var(--ink); background: var(--page); color-scheme: light dark;
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; text-align: left; }
@media (prefers-color-scheme: dark) { .axp { --page: #15181c; --card: #1d2126; --ink: #e6e8eb; --quiet: #a9b1bb; --line: #383f48; --link: #7fb8f5;
  --soft: #272c33; --own: #929aa5; --ghost: #4d5661; --mine: #b79ce8; --mine-soft: #352a4d; --plus: #56b4e9; --minus: #f08a4b;
  --yes: #6fd6ae; --no: #ff9c92; --care: #f0c55a; --yes-back: #16332a; --no-back: #3d1f1d; --care-back: #38301a; } }
.axp { *, *::before, *::after { box-sizing: border-box; } }
.axp {
  h1, h2, h3, p, ul, ol, figure, fieldset { margin: 0; padding: 0; border: 0; }
  h1 { font-size: 17px; line-height: 1.3; } h2 { font-size: 15px; } h3 { font-size: 14px; }
  button, input, select, textarea { font: inherit; color: inherit; background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: 4px 10px; min-height: 32px; }
  button { cursor: pointer; } button:hover:not(:disabled) { border-color: var(--link); }
  button:disabled { color: var(--quiet); background: var(--soft); cursor: default; }
  button[aria-pressed=true], button[aria-selected=true], button[aria-checked=true] { border-color: var(--mine); box-shadow: inset 0 0 0 1px var(--mine); background: var(--mine-soft); }
  :focus-visible { outline: 3px solid var(--link); outline-offset: 1px; }
  .quiet { color: var(--quiet); } .small { font-size: 13px; } .num { font-variant-numeric: tabular-nums; }
  .hidden { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
  .row { display: flex; flex-wrap: wrap; gap: 6px 8px; align-items: center; }
  .card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 14px 16px; }
  label.field { display: inline-flex; align-items: center; gap: 6px; font-size: 13px; color: var(--quiet); }
  .top { position: sticky; top: 0; z-index: 5; background: var(--page); border-bottom: 1px solid var(--line); padding: 10px 16px; display: grid; gap: 8px; }
  .verdicts { display: grid; grid-auto-flow: column; grid-auto-columns: 1fr; gap: 10px; }
  .verdict { border-left: 4px solid var(--line); border-radius: 6px; background: var(--soft); padding: 6px 12px; min-width: 0; }
  .verdict.yes { border-color: var(--yes); background: var(--yes-back); } .verdict.no { border-color: var(--no); background: var(--no-back); }
  .verdict.with-care, .verdict.undecided { border-color: var(--care); background: var(--care-back); }
  .verdict .answer { font-weight: 700; } .verdict.yes .answer { color: var(--yes); } .verdict.no .answer { color: var(--no); }
  .verdict.with-care .answer, .verdict.undecided .answer { color: var(--care); }
  .verdict ul { list-style: none; display: flex; flex-wrap: wrap; gap: 0 16px; }
  .verdict summary { cursor: pointer; } .verdicts.two .verdict details:not([open]) .headline { display: none; }
  .verdict details p { font-size: 13px; margin-top: 4px; max-width: 80ch; }
  .body { display: grid; grid-template-columns: minmax(230px, 300px) minmax(0, 1fr); gap: 16px; padding: 16px; max-width: 1500px; margin: 0 auto; align-items: start; }
  .body.two { max-width: 1800px; }
  .texts { display: grid; gap: 10px; }
  .texts ul { list-style: none; overflow-y: auto; max-height: 62vh; display: grid; gap: 4px; padding: 3px; margin: -3px; }
  .texts li button { width: 100%; text-align: left; padding: 6px 10px; }
  .texts .said { display: -webkit-box; -webkit-line-clamp: 2; -webkit-box-orient: vertical; overflow: hidden; overflow-wrap: anywhere; line-height: 1.35; }
  .texts .facts { display: flex; flex-wrap: wrap; gap: 0 10px; font-size: 12.5px; color: var(--quiet); }
  .texts textarea { width: 100%; min-height: 62px; resize: vertical; } .texts input, .texts select { width: 100%; }
  .main { display: grid; gap: 14px; min-width: 0; }
  .editors { display: grid; gap: 14px; } .editors.two { grid-template-columns: repeat(2, minmax(0, 1fr)); }
  .editor { display: grid; gap: 12px; align-content: start; min-width: 0; }
  .tokens { display: flex; flex-wrap: wrap; gap: 8px 3px; touch-action: pan-y; }
  .token { display: grid; justify-items: center; min-width: 26px; max-width: 150px; border-radius: 6px; padding: 2px 3px 3px; cursor: ns-resize; user-select: none; -webkit-user-select: none; touch-action: none; }
  .token:hover { background: var(--soft); } .token.chosen { background: var(--mine-soft); }
  .token.fixed { cursor: not-allowed; } .token.fixed .label { color: var(--quiet); font-style: italic; }
  .track { width: 22px; height: 98px; border-bottom: 2px solid var(--own); background: linear-gradient(var(--mine) 0 0) 50% 100% no-repeat, linear-gradient(var(--ghost) 0 0) 50% 100% no-repeat; background-size: 0 0; background-origin: padding-box; }
  .dense .token { min-width: 15px; padding: 1px; max-width: 90px; } .dense .track { width: 12px; height: 46px; } .dense .label { font-size: 12px; }
  .label { max-width: 100%; overflow-wrap: anywhere; text-align: center; line-height: 1.25; font-size: 14px; }
  .strips { display: grid; gap: 2px; width: 100%; margin-top: 2px; } .strips i { display: block; height: 6px; border-radius: 2px; background: var(--soft); min-width: 14px; }
  .key { display: flex; flex-wrap: wrap; gap: 2px 16px; list-style: none; font-size: 13px; }
  .swatch { display: inline-block; width: 12px; height: 10px; border-radius: 2px; margin-right: 5px; vertical-align: baseline; }
  .outcome { display: grid; gap: 8px; } .outcome table { border-collapse: collapse; width: 100%; }
  .outcome th { text-align: left; font-weight: 400; font-size: 12.5px; color: var(--quiet); } .outcome :is(th, td) { padding: 2px 8px 2px 0; vertical-align: middle; } .outcome td.num, .outcome th.num { text-align: right; }
  .outcome td:first-child { overflow-wrap: break-word; max-width: 180px; } .outcome td.chart { width: 50%; min-width: 90px; }
  .pair { display: grid; gap: 2px; } .pair i { display: block; height: 8px; background: var(--own); transform-origin: left; transform: scaleX(0); border-radius: 1px; } .pair i + i { background: var(--mine); }
  .decision { font-weight: 650; font-size: 16px; } .decision.flip { color: var(--no); } .decision.stay { color: var(--yes); }
  .targets { display: flex; flex-wrap: wrap; gap: 4px; } .targets button { min-height: 28px; padding: 1px 8px; } .targets button.changed { border-color: var(--no); color: var(--no); }
  .split { display: flex; flex-wrap: wrap; gap: 14px 28px; align-items: flex-start; } .split > .scroll { flex: 0 1 auto; max-width: 100%; } .bars { flex: 1 1 330px; min-width: 0; display: grid; gap: 12px; }
  .scroll { overflow-x: auto; } canvas { display: block; }
  .headgrid { border-collapse: separate; border-spacing: 3px; } .headgrid th { font-weight: 400; font-size: 12.5px; color: var(--quiet); padding: 0 4px; white-space: nowrap; }
  .headgrid button { display: grid; gap: 1px; padding: 3px; min-width: 50px; min-height: 0; font-size: 12px; line-height: 1.2; justify-items: center; }
  .plots { display: flex; flex-wrap: wrap; gap: 14px 24px; align-items: flex-start; } .plots figure { min-width: 0; } figcaption { font-size: 13px; color: var(--quiet); margin-bottom: 4px; }
  svg text { fill: var(--quiet); font: 12px system-ui, sans-serif; }
  input[type=range] { padding: 0; accent-color: var(--mine); flex: 1 1 160px; min-height: 32px; border: 0; background: none; }
  input[type=checkbox] { min-height: 0; accent-color: var(--mine); }
  progress { width: 100%; accent-color: var(--mine); }
  .error { border-left: 4px solid var(--no); background: var(--no-back); padding: 6px 12px; border-radius: 6px; overflow-wrap: anywhere; }
}
@container (max-width: 820px) { .axp {
  .body { grid-template-columns: minmax(0, 1fr); padding: 10px; } .top { position: static; padding: 8px 10px; } .card { padding: 10px 11px; }
  .editors.two { grid-template-columns: minmax(0, 1fr); } .texts ul { max-height: 34vh; }
  .top h1 .quiet { display: none; } .verdicts { gap: 6px; } .verdict { padding: 4px 9px; font-size: 13px; } .verdict ul { gap: 0 10px; } .verdict .headline { display: none; } .verdict details[open] .headline { display: block; }
} }
`;

// Small things --------------------------------------------------------------------------------------------------------

const SVG = "http://www.w3.org/2000/svg";

function make(tag, attributes = {}, ...children) {
  const node = tag.startsWith("svg:") ? document.createElementNS(SVG, tag.slice(4)) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.setAttribute("class", value);
    else if (name === "value" || name === "checked" || name === "disabled" || name === "selected") node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

// The heights of a token's bar and of the grey one behind it, in steps of a third of a pixel; what stays is not drawn again.
function stretch(track, bar, behind) {
  const height = (share) => `${(Math.round(288 * Math.min(1, share)) / 2.88).toFixed(2)}%`, size = `60% ${height(bar)}, 100% ${height(behind)}`;
  if (track.size !== size) { track.size = size; track.style.backgroundSize = size; }
}

const number = (value, digits = 3) => (value === null || value === undefined || Number.isNaN(value) ? "–" : value.toFixed(digits).replace("-", "−"));
const percent = (value) => `${(100 * value).toFixed(value > 0.0995 && value < 0.9995 ? 0 : 1)} %`;
const sum = (values) => { let total = 0; for (const value of values) total += value; return total; };
const key = (request) => JSON.stringify(Object.fromEntries(Object.entries(request).filter(([name, value]) => name !== "id" && value !== null && value !== undefined).sort(([a], [b]) => (a < b ? -1 : 1))));
const visible = (token) => { const text = token.replace(/^[Ġ▁]/, "").replace(/Ċ/g, "↵"); return text.trim() === "" ? "␣" : text; };

function softmax(logits) {
  const top = Math.max(...logits);
  const powers = logits.map((logit) => Math.exp(logit - top));
  const total = sum(powers);
  return powers.map((power) => power / total);
}

// Kendall's τ-b over the positions in `places`.
export function kendall(x, y, places) {
  let agreeing = 0, untiedX = 0, untiedY = 0;
  for (let i = 0; i < places.length; i++) {
    for (let j = i + 1; j < places.length; j++) {
      const a = Math.sign(x[places[j]] - x[places[i]]), b = Math.sign(y[places[j]] - y[places[i]]);
      agreeing += a * b; untiedX += a * a; untiedY += b * b;
    }
  }
  return agreeing / Math.sqrt(untiedX) / Math.sqrt(untiedY);
}

// Weights with one position set to `value`, and the rest scaled so that the sum stays what it is.
export function setWeight(weights, group, value, attended) {
  const changed = Float32Array.from(weights), inside = new Set(group);
  const before = sum(group.map((i) => weights[i])), others = attended.filter((i) => !inside.has(i));
  const rest = sum(others.map((i) => weights[i]));
  const target = others.length ? Math.min(1, Math.max(0, value)) : 1;
  for (const i of group) changed[i] = before > 0 ? (weights[i] * target) / before : target / group.length;
  for (const i of others) changed[i] = rest > 0 ? (weights[i] * (1 - target)) / rest : (1 - target) / others.length;
  return changed;
}

function base64(array) {
  const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return btoa(text);
}

function fromBase64(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Float32Array(bytes.buffer);
}

// Requests ------------------------------------------------------------------------------------------------------------

class Client {
  constructor(model, report) {
    this.model = model; this.waiting = new Map(); this.cache = new Map(); this.report = report;
    this.prefix = Math.random().toString(36).slice(2); this.count = 0;
    this.receive = (message, buffers) => {
      const pending = this.waiting.get(message.id);
      if (!pending) return;
      if (message.progress) { pending.progress?.(...message.progress); return; }
      this.waiting.delete(message.id);
      setTimeout(() => this.report(this.waiting.size)); // after everything that waits for this answer
      if (message.error) pending.reject(new Error(message.error));
      else pending.resolve({ ...message, tensors: (buffers || []).map(asFloats) });
    };
    model.on("msg:custom", this.receive);
  }

  ask(request, buffers = [], progress = null) {
    const id = `${this.prefix}-${++this.count}`;
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve, reject, progress }); this.report(this.waiting.size);
      this.model.send({ ...request, id }, undefined, buffers);
    });
  }

  // Answers that do not change are kept.
  once(request) {
    const name = key(request);
    if (!this.cache.has(name)) {
      const answer = this.ask(request);
      answer.catch(() => this.cache.delete(name));
      this.cache.set(name, answer);
      if (this.cache.size > 600) this.cache.delete(this.cache.keys().next().value);
    }
    return this.cache.get(name);
  }

  close() { this.model.off("msg:custom", this.receive); }
}

function asFloats(buffer) {
  const view = ArrayBuffer.isView(buffer) ? buffer : new DataView(buffer);
  return new Float32Array(view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength));
}

// One model and one text ----------------------------------------------------------------------------------------------

class Editor {
  constructor(app, index) {
    this.app = app; this.index = index;
    this.edits = new Map(); // "layer/head/row" -> weights; an empty layer or head stands for all
    this.presets = new Map(); // the name of the preset that an edit comes from
    this.scores = new Map(); this.missing = {}; this.chosen = 0; this.turn = 0; this.sent = false; this.queued = false;
    this.node = make("section", { class: "editor card" });
  }

  get source() { return this.view.tokens.length; }
  get rows() { return this.view.targets.length; }
  get row() { return Math.min(this.app.state.row, this.rows - 1); }
  get attended() { return this.attendedAt(this.row); }

  // The positions that an output token may attend to; in a language model, none after it.
  attendedAt(row) {
    const last = this.view.queries ? this.view.queries[row] : Infinity;
    return this.view.attended.flatMap((there, i) => (there && i <= last ? [i] : []));
  }

  // Until the text that is picked is there, what is on display belongs to another one and cannot be edited.
  suspend() { this.turn++; this.loading = true; this.queued = false; this.node.setAttribute("aria-busy", "true"); }

  async load() {
    const { turn } = this, place = { model: this.index, step: this.app.state.step, text: this.app.state.text };
    let view = null, problem = "";
    try { view = await this.app.client.once({ kind: "view", ...place }); } catch (error) { problem = error.message; }
    if (turn !== this.turn) return;
    this.view = view; this.place = place; this.loading = false; this.node.removeAttribute("aria-busy");
    if (!view) { this.node.replaceChildren(make("p", { class: "error" }, problem)); return; }
    [this.attention, this.own, this.contributions] = view.tensors;
    this.table = null;
    this.scores = new Map(); this.missing = {};
    const before = [...this.edits.values()][0];
    if (before && before.length !== this.source) { this.edits = new Map(); this.presets = new Map(); }
    this.layer = view.layers === 1 || this.app.state.layer === undefined ? view.layers - 1 : this.app.state.layer;
    this.head = view.heads === 1 ? null : this.app.state.head ?? null;
    this.group();
    if (this.read !== this.app.state.text) { this.read = this.app.state.text; const own = this.groups.map((_, cell) => this.cellWeight(this.ownWeights(), cell)); this.chosen = own.indexOf(Math.max(...own)); }
    this.draw();
    await this.recompute();
    if (turn === this.turn) this.loadScores(turn);
  }

  async loadScores(turn) {
    const { place } = this;
    for (const name of this.app.overview.scores) {
      if (name === "leave-one-out" && this.source > 64 && !this.app.wanted.has(name)) continue;
      try {
        const answer = await this.app.client.once({ kind: "scores", names: [name], ...place });
        if (turn !== this.turn) return;
        Object.assign(this.missing, answer.missing);
        answer.names.forEach((each, i) => this.scores.set(each, answer.tensors[i]));
      } catch (error) {
        if (turn !== this.turn) return;
        this.missing[name] = error.message;
      }
      this.drawStrips();
    }
  }

  // Cells of the display: tokens, or words where subwords are joined.
  group() {
    const { units, words, tokens } = this.view;
    this.joinable = new Set(units).size < units.length;
    const joined = this.joinable && (this.app.state.joined || this.app.differ);
    this.groups = joined ? words.map((_, unit) => units.flatMap((each, i) => (each === unit ? [i] : []))) : tokens.map((_, i) => [i]);
    this.names = joined ? words : tokens;
    this.chosen = Math.min(this.chosen, this.groups.length - 1);
  }

  editable(cell) {
    if (this.loading) return false;
    const last = this.view.queries ? this.view.queries[this.row] : Infinity;
    return this.groups[cell].every((i) => this.view.attended[i] && i <= last);
  }

  place_(row = this.row) { return `${this.layer ?? ""}/${this.head ?? ""}/${row}`; }

  // The model's own weights of the layers and heads that are picked: their mean.
  ownWeights(row = this.row, layer = this.layer, head = this.head) {
    const { heads, first, layers } = this.view, size = this.source, stride = this.rows * size;
    const chosen = layer === null ? [...Array(layers - first).keys()] : [Math.max(0, layer - first)];
    const values = new Float32Array(size);
    let count = 0;
    for (const one of chosen) {
      for (let h = 0; h < heads; h++) {
        if (head !== null && h !== head) continue;
        const start = (one * heads + h) * stride + row * size;
        for (let i = 0; i < size; i++) values[i] += this.attention[start + i];
        count++;
      }
    }
    return count > 1 ? values.map((value) => value / count) : values;
  }

  weights(row = this.row) { return this.edits.get(this.place_(row)) || this.implied(row); }

  // Where single heads were edited, the mean of what they are now; else the model's own.
  implied(row) {
    const layer = this.layer === null ? "" : this.layer;
    const single = [...this.edits.keys()].filter((name) => name.startsWith(`${layer}/`) && name.endsWith(`/${row}`) && !name.includes("//"));
    if (this.head !== null || !single.length || this.layer === null) return this.edits.get(`${layer}//${row}`) || this.ownWeights(row);
    const values = new Float32Array(this.source);
    for (let h = 0; h < this.view.heads; h++) {
      const one = this.edits.get(`${layer}/${h}/${row}`) || this.ownWeights(row, this.layer, h);
      one.forEach((weight, i) => { values[i] += weight / this.view.heads; });
    }
    return values;
  }

  edit(weights, preset = null, row = this.row) {
    this.edits = new Map(this.edits).set(this.place_(row), weights);
    this.presets = new Map(this.presets).set(this.place_(row), preset);
  }

  // Presets

  presetWeights(name, row) {
    const own = this.ownWeights(row), size = this.source, weights = new Float32Array(size), attended = this.attendedAt(row), inside = new Set(attended);
    const kind = name.split(" ")[0];
    const group = kind === "only" || kind === "without" ? this.groups[this.chosen] : [];
    if (kind === "uniform") for (const i of attended) weights[i] = 1 / attended.length;
    if (kind === "shuffled") { const order = this.view.shuffle.filter((i) => inside.has(i)); weights.set(own); attended.forEach((i, n) => { weights[i] = own[order[n]]; }); }
    if (kind === "only") { const mass = sum(group.map((i) => own[i])); for (const i of group) weights[i] = mass > 0 ? own[i] / mass : 1 / group.length; }
    if (kind === "without") return setWeight(own, group, 0, attended);
    if (kind === "human") weights.set(this.view.human);
    if (kind === "gold") { if (this.view.gold[row] === null) return own; weights[this.view.gold[row]] = 1; }
    return weights;
  }

  async apply(name) {
    if (this.loading) return;
    const rows = this.app.state.everywhere ? [...Array(this.rows).keys()] : [this.row];
    if (name === "own") {
      this.edits = new Map([...this.edits].filter(([place]) => !rows.includes(Number(place.split("/")[2]))));
    } else if (name === "farthest") {
      if (!(await this.applyFarthest())) return;
    } else {
      const group = this.groups[this.chosen];
      const preset = name === "only" || name === "without" ? (group.length === 1 ? `${name} ${group[0]}` : null) : name;
      for (const row of rows) this.edit(this.presetWeights(name, row), preset, row);
    }
    this.app.commit();
    this.refresh();
    await this.recompute(true);
  }

  async applyFarthest() {
    const { turn, row } = this;
    this.note("Searching for the farthest attention with the same output …");
    try {
      const answer = await this.app.client.once({ kind: "farthest", row, ...this.place });
      if (turn !== this.turn || row !== this.row) return false;
      if (!answer.feasible) { this.note("No other attention was found with the same output."); return false; }
      const layer = this.view.layers - 1, size = this.source;
      this.edits = new Map(this.edits);
      for (let h = 0; h < this.view.heads; h++) {
        const place = `${layer}/${this.view.heads === 1 ? "" : h}/${this.row}`;
        this.edits.set(place, answer.tensors[0].slice(h * size, (h + 1) * size));
        this.presets.set(place, null);
      }
      this.farthest = `JSD from the model's own attention: ${number(answer.jsd / Math.LN2, 2)} of at most 1, TVD of the output ${number(answer.tvd)}, ε = ${answer.epsilon}.`;
      this.note(this.farthest);
      return true;
    } catch (error) { if (turn === this.turn) this.note(error.message, true); return false; }
  }

  // Output

  logits(row) {
    const weights = this.weights(row), size = this.source, outputs = this.view.outputs.length, start = row * size * outputs;
    const logits = new Array(outputs).fill(0);
    for (let i = 0; i < size; i++) {
      if (weights[i] === 0) continue;
      for (let o = 0; o < outputs; o++) logits[o] += weights[i] * this.contributions[start + i * outputs + o];
    }
    return logits;
  }

  ownTable(row) {
    if (!this.view.outputs) return this.view.top[row].map(([name, before]) => [name, before, before]);
    const outputs = this.view.outputs.length;
    return this.view.outputs.map((name, o) => [name, this.own[row * outputs + o], this.own[row * outputs + o]]);
  }

  liveOutcome() {
    const change = new Array(this.rows).fill(0), predicted = [...this.view.predicted], outputs = this.view.outputs;
    let table = this.ownTable(this.row);
    for (const place of this.edits.keys()) {
      const row = Number(place.split("/")[2]), after = softmax(this.logits(row));
      const before = outputs.map((_, o) => this.own[row * outputs.length + o]);
      change[row] = sum(after.map((p, o) => Math.abs(p - before[o]))) / 2;
      predicted[row] = outputs[after.indexOf(Math.max(...after))];
      if (row === this.row) table = outputs.map((name, o) => [name, before[o], after[o]]);
    }
    return { tvd: change, predicted, table };
  }

  // Compute the output with the edits: here where it is a weighted sum, else by the model, one request at a time.
  async recompute(announced = false) {
    if (!this.edits.size) { this.outcome = { tvd: new Array(this.rows).fill(0), predicted: this.view.predicted, table: this.ownTable(this.row) }; this.drawOutcome(announced); return; }
    if (this.view.live) { this.outcome = this.liveOutcome(); this.drawOutcome(announced); return; }
    if (this.sent) { this.queued = true; return; }
    this.sent = true;
    await this.send();
    this.sent = false;
    if (this.queued && !this.loading) { this.queued = false; await this.recompute(announced); }
  }

  async send() {
    const { turn, row } = this, places = [...this.edits.keys()], packed = new Float32Array(places.length * this.source);
    places.forEach((place, n) => packed.set(this.edits.get(place), n * this.source));
    const edits = places.map((place) => place.split("/").map((part) => (part === "" ? null : Number(part))));
    const preset = places.length === 1 ? this.presets.get(places[0]) : null, begun = performance.now();
    const outdated = () => turn !== this.turn || row !== this.row || !this.edits.size; // meanwhile another text or row, or undone
    try {
      const answer = await this.app.client.ask({ kind: "intervene", edits, preset, row, ...this.place }, [packed.buffer]);
      if (outdated()) return;
      this.outcome = answer;
      this.node.dataset.latency = performance.now() - begun;
      this.note(this.farthest && [...this.presets.values()].includes(null) ? this.farthest : "");
      this.drawOutcome(true);
    } catch (error) {
      if (outdated()) return;
      this.outcome = null;
      this.note(error.message, true);
      this.drawOutcome();
    }
  }

  // Drawing

  draw() {
    const { app, view } = this, info = app.overview.models[this.index];
    const several = view.layers * view.heads > 1;
    this.notice = make("p", { class: "small quiet", role: "status" });
    this.cells = this.groups.map((_, cell) => this.cell(cell));
    this.tokens = make("div", { class: `tokens ${this.groups.length > 90 ? "dense" : ""}`, role: "group", "aria-label": `Attention weights of ${info.name}`, "aria-describedby": `${app.id}-help` }, ...this.cells.map((cell) => cell.node));
    this.strips = make("ul", { class: "key", "aria-label": "Scores under the tokens" });
    this.result = make("div", { class: "outcome" }); this.table = null;
    this.live = make("p", { class: "hidden", role: "status", "aria-live": "polite" });
    this.buttons = {};
    const button = (name, text, hint) => (this.buttons[name] = make("button", { type: "button", title: hint, onclick: () => this.apply(name) }, text));
    const presets = [
      button("own", "Model's own"), button("uniform", "Uniform", "The same weight on every token"), button("shuffled", "Shuffled", "The same weights in a random order"),
      button("farthest", "Farthest, same output", "The attention farthest from the model's own (JSD) whose output differs by at most ε"),
      view.gold && button("gold", "Gold", "All weight on the token that the output comes from"), view.human && button("human", "Human", "The words that annotators marked"),
      button("only", "Only this"), button("without", "Without this"),
    ];
    const picker = (name, count, noun, all) => make("label", { class: "field" }, noun,
      make("select", { "aria-label": noun, onchange: (event) => app.pick({ [name]: event.target.value === "" ? null : Number(event.target.value) }) },
        make("option", { value: "", selected: this[name] === null }, all),
        ...[...Array(count).keys()].map((i) => make("option", { value: i, selected: this[name] === i }, String(i)))));
    this.node.replaceChildren(
      make("div", { class: "row" },
        make("h2", {}, info.name), make("span", { class: "small quiet" }, `${info.kind}${several ? `, ${view.layers} layers × ${view.heads} heads` : ""}${app.state.step === null ? "" : `, step ${app.state.step}`}`),
        view.layers > 1 && picker("layer", view.layers, "Layer", "all layers"), view.heads > 1 && picker("head", view.heads, "Head", "all heads"),
        this.joinable && make("label", { class: "field" }, make("input", { type: "checkbox", checked: this.names === view.words, disabled: app.differ, onchange: (event) => app.pick({ joined: event.target.checked }) }), "join subwords")),
      ...this.targetRow(),
      make("div", { class: "split" }, this.matrixBox,
        make("div", { class: "bars" }, make("div", { class: "row", role: "toolbar", "aria-label": `Other attention for ${info.name}` }, ...presets), this.tokens, this.strips, this.notice, this.result)),
      this.live, ...(view.cut ? [make("p", { class: "small quiet" }, "The text was too long for the model: part of it was cut off.")] : []));
    if (view.first) this.note("This text is too long for all layers at once: only the last layer is shown.");
    this.drawMatrix();
    this.refresh();
  }

  targetRow() {
    this.matrixBox = "";
    if (this.view.classifies) return [];
    const reference = this.app.overview.models[this.index].reference;
    this.targetButtons = this.view.targets.map((token, row) => make("button", { type: "button", role: "radio", onclick: () => this.app.pick({ row }), onkeydown: (event) => this.moveRow(event, row) }, visible(token)));
    this.matrix = make("canvas", { role: "img", onclick: (event) => { const row = Math.floor((event.offsetY - this.grid.top) / this.grid.size); if (row >= 0 && row < this.rows) this.app.pick({ row }); } });
    this.matrixBox = make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Attention matrix" }, this.matrix);
    return [
      make("div", { class: "row" }, make("h3", { id: `${this.app.id}-targets-${this.index}` }, this.view.queries ? "Next token at each position" : reference ? "Output token (the reference, teacher-forced)" : "Output token (the model's own output, teacher-forced)"),
        make("label", { class: "field" }, make("input", { type: "checkbox", checked: this.app.state.everywhere, onchange: (event) => this.app.pick({ everywhere: event.target.checked }) }), "change all output tokens")),
      make("div", { class: "targets", role: "radiogroup", "aria-labelledby": `${this.app.id}-targets-${this.index}` }, ...this.targetButtons),
    ];
  }

  moveRow(event, row) {
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    this.app.pick({ row: (row + by + this.rows) % this.rows });
    this.targetButtons[(row + by + this.rows) % this.rows].focus();
  }

  cell(cell) {
    const name = visible(this.names[cell]);
    const track = make("div", { class: "track" }), strips = make("div", { class: "strips", "aria-hidden": "true" });
    const node = make("div", { class: "token", role: "slider", tabindex: -1, "aria-label": name, "aria-valuemin": 0, "aria-valuemax": 1, "aria-orientation": "vertical",
      onpointerdown: (event) => this.drag(event, cell), onkeydown: (event) => this.keys(event, cell), onfocus: () => this.choose(cell) },
    track, make("span", { class: "label" }, name), strips);
    return { node, track, strips };
  }

  choose(cell) {
    this.cells[this.chosen]?.node.classList.remove("chosen");
    this.cells[this.chosen]?.node.setAttribute("tabindex", -1);
    this.chosen = cell;
    this.cells[cell].node.classList.add("chosen");
    this.cells[cell].node.setAttribute("tabindex", 0);
    const name = visible(this.names[cell]), short = name.length > 14 ? `${name.slice(0, 13)}…` : name;
    this.buttons.only.textContent = `Only “${short}”`;
    this.buttons.without.textContent = `Without “${short}”`;
    this.buttons.only.disabled = this.buttons.without.disabled = !this.editable(cell);
  }

  cellWeight(weights, cell) { return sum(this.groups[cell].map((i) => weights[i])); }

  drag(event, cell) {
    if (event.button > 0) return;
    const node = this.cells[cell].node;
    node.focus({ preventScroll: true });
    if (!this.editable(cell)) return;
    event.preventDefault();
    const scale = this.scale();
    const start = this.cellWeight(this.weights(), cell), from = event.clientY;
    // A press on the track takes the bar there; a press on the label moves it from where it is.
    const box = this.cells[cell].track.getBoundingClientRect(), { height } = box, inside = event.clientY >= box.top - 2 && event.clientY <= box.bottom + 2;
    let moved = false, frame = 0, last = event.clientY;
    const { turn } = this;
    const show = () => {
      frame = 0;
      if (turn !== this.turn) return;
      const value = inside ? ((box.bottom - last) / height) * scale : start + ((from - last) / height) * scale;
      this.edit(setWeight(this.weights(), this.groups[cell], value, this.attended));
      this.refresh(true, Math.max(scale, value));
      this.recompute();
    };
    const move = (next) => { last = next.clientY; if (Math.abs(last - from) > 2) moved = true; if (moved && !frame) frame = requestAnimationFrame(show); };
    const end = () => {
      node.removeEventListener("pointermove", move); node.removeEventListener("pointerup", end); node.removeEventListener("pointercancel", end);
      if (frame) { cancelAnimationFrame(frame); show(); }
      if (moved && turn === this.turn) { this.app.commit(); this.refresh(); this.recompute(true); }
    };
    node.setPointerCapture(event.pointerId);
    node.addEventListener("pointermove", move); node.addEventListener("pointerup", end); node.addEventListener("pointercancel", end);
  }

  keys(event, cell) {
    const by = { ArrowUp: 0.01, ArrowDown: -0.01, PageUp: 0.1, PageDown: -0.1 }[event.key];
    const to = { Home: 0, End: this.groups.length - 1, ArrowLeft: cell - 1, ArrowRight: cell + 1 }[event.key];
    if (to !== undefined) {
      event.preventDefault();
      this.cells[Math.min(Math.max(to, 0), this.cells.length - 1)].node.focus();
    } else if (by && this.editable(cell)) {
      event.preventDefault();
      const value = this.cellWeight(this.weights(), cell) + by * (event.shiftKey ? 10 : 1);
      this.edit(setWeight(this.weights(), this.groups[cell], value, this.attended));
      this.app.commit(`key ${cell}`); this.refresh(); this.recompute(true);
    } else if (["Delete", "Backspace", "0"].includes(event.key) && this.editable(cell)) {
      event.preventDefault(); this.apply("without");
    } else if (["Enter", "1"].includes(event.key) && this.editable(cell)) {
      event.preventDefault(); this.apply("only");
    }
  }

  scale() {
    const own = this.ownWeights(), now = this.weights();
    let top = 4 / this.groups.length;
    for (let cell = 0; cell < this.groups.length; cell++) top = Math.max(top, this.cellWeight(own, cell), this.cellWeight(now, cell));
    return Math.min(1, top);
  }

  refresh(dragging = false, scale = this.scale()) {
    const own = this.ownWeights(), now = this.weights(), edited = this.edits.size > 0;
    this.cells.forEach((cell, i) => {
      const weight = this.cellWeight(now, i);
      stretch(cell.track, weight / scale, this.cellWeight(own, i) / scale);
      if (dragging && i !== this.chosen) return;
      cell.node.setAttribute("aria-valuenow", weight.toFixed(4));
      cell.node.setAttribute("aria-valuetext", `${percent(weight)}${edited ? `, own ${percent(this.cellWeight(own, i))}` : ""}`);
    });
    if (dragging) return;
    this.cells.forEach(({ node }, i) => {
      const fixed = !this.editable(i);
      node.classList.toggle("fixed", fixed); node.setAttribute("aria-disabled", String(fixed)); node.title = fixed ? "The model does not attend to this token" : "";
    });
    this.choose(this.chosen); this.drawMatrix(); this.buttons.own.disabled = !edited;
  }

  drawStrips() {
    const size = this.source, own = this.ownWeights(), shown = [...this.scores];
    const places = this.attended.filter((i) => !this.view.special[i]);
    const values = shown.map(([, all]) => this.groups.map((group) => sum(group.map((i) => all[this.row * size + i] || 0))));
    const tops = values.map((each) => Math.max(1e-12, ...each.map(Math.abs)));
    this.cells.forEach((cell, i) => {
      cell.strips.replaceChildren(...values.map((each, n) => {
        const share = each[i] / tops[n], strip = make("i", { title: `${shown[n][0]} ${number(each[i])}` });
        strip.style.background = `color-mix(in srgb, var(${share < 0 ? "--minus" : "--plus"}) ${Math.round(100 * Math.abs(share))}%, var(--soft))`;
        return strip;
      }));
    });
    const swatch = (colour) => { const mark = make("span", { class: "swatch", "aria-hidden": "true" }); mark.style.background = `var(${colour})`; return mark; };
    const items = shown.map(([name, all]) => {
      const tau = kendall(own, all.subarray(this.row * size, (this.row + 1) * size), places);
      return make("li", {}, `${name}: τ with attention `, make("b", { class: "num", "data-tau": name }, number(tau, 2)));
    });
    const wanted = !shown.some(([name]) => name === "leave-one-out") && !this.missing["leave-one-out"] && this.source > 64;
    this.strips.replaceChildren(
      items.length ? make("li", { class: "quiet" }, "Strips under the tokens, from top to bottom:") : "", ...items,
      items.length ? make("li", { class: "quiet" }, swatch("--plus"), "raises the output ", swatch("--minus"), "lowers it") : "",
      ...Object.entries(this.missing).map(([name]) => make("li", { class: "quiet" }, `no ${name} for this model`)),
      wanted ? make("li", {}, make("button", { type: "button", onclick: () => { this.app.wanted.add("leave-one-out"); this.loadScores(this.turn); } }, "Compute leave-one-out")) : "");
  }

  drawOutcome(announced = false) {
    const found = this.outcome, row = this.row;
    if (!found) { this.result.replaceChildren(); this.table = null; return; }
    const before = this.view.predicted[row], after = found.predicted[row], flipped = before !== after, edited = this.edits.size > 0;
    const others = found.predicted.filter((name, r) => name !== this.view.predicted[r]).length;
    const noun = this.view.classifies ? "decision" : "output token";
    const held = this.app.model.get("host") === "static" && !this.view.live;
    this.app.help.hidden = held;
    const text = !edited ? `${this.view.classifies ? "Decision" : this.view.queries ? "Predicted next token" : "Output token"}: ${visible(before)}. ${held ? "This page holds the outputs for the buttons above; to drag a bar, run attnscope explore MODEL." : "Drag a bar to change its weight."}`
      : flipped ? `The ${noun} changes: ${visible(before)} → ${visible(after)}.` : `The ${noun} stays: ${visible(before)}.`;
    const table = likeliest(found.table);
    if (!this.table || this.table.names !== JSON.stringify(table.map(([name]) => name))) this.newTable(table);
    this.sentence.textContent = text;
    this.sentence.className = `decision ${edited ? (flipped ? "flip" : "stay") : ""}`;
    this.change.textContent = edited ? `Change of the output (TVD): ${number(found.tvd[row])}${this.rows > 1 ? `; output tokens that change: ${others} of ${this.rows}` : ""}` : "";
    table.forEach(([, one, other], i) => {
      const line = this.table.lines[i];
      line.bars[0].style.transform = `scaleX(${one})`; line.bars[1].style.transform = `scaleX(${other})`;
      line.cells[0].textContent = number(one); line.cells[1].textContent = number(other);
      line.cells[1].dataset.value = other;
    });
    this.targetButtons?.forEach((button, r) => {
      button.setAttribute("aria-checked", r === row ? "true" : "false"); button.tabIndex = r === row ? 0 : -1;
      const other = found.predicted[r] !== this.view.predicted[r];
      button.classList.toggle("changed", other);
      button.title = other ? `${this.view.predicted[r]} → ${found.predicted[r]}` : `TVD ${number(found.tvd[r])}`;
    });
    this.node.dataset.tvd = found.tvd[row];
    if (announced) this.live.textContent = `${text} ${this.change.textContent}`;
  }

  newTable(table) {
    this.sentence = make("p", {}); this.change = make("p", { class: "num" });
    const lines = table.map(([name]) => {
      const bars = [make("i", {}), make("i", {})], cells = [make("td", { class: "num" }), make("td", { class: "num", "data-output": name })];
      return { bars, cells, node: make("tr", {}, make("td", {}, visible(name)), make("td", { class: "chart" }, make("div", { class: "pair", "aria-hidden": "true" }, ...bars)), ...cells) };
    });
    this.table = { names: JSON.stringify(table.map(([name]) => name)), lines };
    this.result.replaceChildren(this.sentence, this.change, make("table", {},
      make("caption", { class: "hidden" }, "Probabilities of the outputs before and after the change"),
      make("thead", {}, make("tr", {}, make("th", { scope: "col" }, this.view.classifies ? "class" : "token"), make("th", { scope: "col" }, "probability"), make("th", { scope: "col", class: "num" }, "before"), make("th", { scope: "col", class: "num" }, "after"))),
      make("tbody", {}, ...lines.map((line) => line.node))));
  }

  drawMatrix() {
    if (this.view.classifies || !this.matrix) return;
    const width = Math.min(560, Math.max(200, this.node.clientWidth - 40 || 500));
    const size = Math.max(7, Math.min(22, Math.floor((width - 100) / this.source), Math.floor(520 / this.rows)));
    this.grid = drawHeat(this.matrix, [...Array(this.rows).keys()].map((row) => this.weights(row)), this.view.targets, this.view.tokens, size, this.row);
    this.matrix.setAttribute("aria-label", `Attention of ${this.rows} output tokens to ${this.source} source tokens; row ${this.row + 1}, ${this.view.targets[this.row]}, is being edited`);
  }

  note(text, failed = false) { this.notice.textContent = text; this.notice.className = failed ? "error small" : "small quiet"; }
}

// Of many outputs, those with the highest probabilities before or after.
function likeliest(table) {
  if (table.length <= 10) return table;
  const sorted = [...table].sort((a, b) => Math.max(b[1], b[2]) - Math.max(a[1], a[2])).filter(([, one, other], i) => i < 3 || Math.max(one, other) >= 0.001);
  return sorted.slice(0, 8).sort((a, b) => b[1] - a[1]);
}

// A heat map on a canvas, with the names of rows and columns where there is room.
function drawHeat(canvas, rows, targets, sources, size, chosen = null) {
  const style = getComputedStyle(canvas), ink = style.getPropertyValue("--ink") || "#000", mine = style.getPropertyValue("--mine") || "#5e3c99";
  const named = size >= 11, left = named ? 70 : 4, top = named ? 60 : 4;
  const width = left + sources.length * size + 30, height = top + rows.length * size + 6, ratio = window.devicePixelRatio || 1;
  canvas.width = width * ratio; canvas.height = height * ratio; canvas.style.width = `${width}px`; canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio); context.clearRect(0, 0, width, height); context.font = "11px system-ui, sans-serif";
  const cut = (text) => (visible(text).length > 10 ? `${visible(text).slice(0, 9)}…` : visible(text));
  context.fillStyle = ink; context.textBaseline = "middle";
  if (named) {
    context.textAlign = "right";
    targets.forEach((name, row) => context.fillText(cut(name), left - 5, top + (row + 0.5) * size));
    context.textAlign = "left";
    sources.forEach((name, column) => { context.save(); context.translate(left + (column + 0.5) * size, top - 5); context.rotate(-Math.PI / 3.2); context.fillText(cut(name), 0, 0); context.restore(); });
  }
  context.fillStyle = mine;
  rows.forEach((weights, row) => weights.forEach((weight, column) => {
    context.globalAlpha = 0.05 + 0.95 * Math.min(1, Math.max(0, weight));
    context.fillRect(left + column * size, top + row * size, size - 1, size - 1);
  }));
  context.globalAlpha = 1;
  if (chosen !== null) { context.strokeStyle = ink; context.lineWidth = 2; context.strokeRect(left - 1, top + chosen * size - 1, sources.length * size + 1, size + 1); }
  return { left, top, size };
}

// A line chart as SVG: curves are [name, colour, points]; the marker is a vertical line.
function chart(curves, { width = 260, height = 170, marker = null, label, square = false, numbers = true }) {
  const points = curves.flatMap(([, , each]) => each).filter(([x, y]) => Number.isFinite(x) && Number.isFinite(y));
  const xs = points.map(([x]) => x), ys = points.map(([, y]) => y);
  let [left, right, low, high] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  if (square) { const half = Math.max(right - left, high - low) / 2 || 1, cx = (left + right) / 2, cy = (low + high) / 2; [left, right, low, high] = [cx - half, cx + half, cy - half, cy + half]; }
  const x = (value) => 40 + ((value - left) / (right - left || 1)) * (width - 56), y = (value) => height - 24 - ((value - low) / (high - low || 1)) * (height - 40);
  const line = (each) => each.filter((p) => p.every(Number.isFinite)).map(([a, b], i) => `${i ? "L" : "M"}${x(a).toFixed(1)} ${y(b).toFixed(1)}`).join("");
  const text = (a, b, content, anchor = "middle") => make("svg:text", { x: a, y: b, "text-anchor": anchor }, content);
  const node = make("svg:svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label, style: "max-width: 100%; height: auto" });
  if (numbers) node.append(text(40, height - 6, number(left, 0), "start"), text(width - 16, height - 6, number(right, 0), "end"), text(36, y(high) + 4, number(high, 2), "end"), text(36, y(low) + 4, number(low, 2), "end"));
  if (marker !== null) node.append(make("svg:line", { x1: x(marker), x2: x(marker), y1: 8, y2: height - 24, stroke: "var(--quiet)", "stroke-dasharray": "3 3" }));
  curves.forEach(([, colour, each]) => {
    node.append(make("svg:path", { d: line(each), fill: "none", stroke: `var(${colour})`, "stroke-width": 2 }));
    if (square) each.forEach(([a, b], i) => node.append(make("svg:circle", { cx: x(a), cy: y(b), r: i === 0 ? 5 : 2.5, fill: `var(${colour})` })));
  });
  return node;
}

// The application -----------------------------------------------------------------------------------------------------

const MEASURES = {
  confidence: ["confidence", "Probability of the prediction"],
  entropy: ["entropy", "Entropy of attention: 0 on one token, 1 uniform"],
  uniform: ["uniform Δ", "Change of the output (TVD) with uniform attention"],
  farthest: ["movable", "How far attention can move (JSD, at most 1) while the output stays within ε"],
};
const START = { view: null, text: 0, model: 0, step: null, row: 0, head: null, joined: false, everywhere: false };

class App {
  constructor(model, el) {
    this.model = model; this.id = `axp-${Math.random().toString(36).slice(2, 8)}`;
    this.client = new Client(model, (count) => { this.root.dataset.waiting = count; }); this.wanted = new Set(); this.editors = []; this.past = []; this.future = []; this.boxes = {}; this.turn = 0; this.panelTurn = 0;
    this.state = { ...START, ...(model.get("state") || {}) };
    this.root = make("div", { class: "axp" }, make("style", {}, STYLE), make("p", { class: "card" }, "Loading …"));
    el.append(this.root);
  }

  async start() {
    try {
      this.overview = await this.client.once({ kind: "overview" });
    } catch (error) { this.root.append(make("p", { class: "error" }, error.message)); return; }
    if (!this.state.view) this.state.view = this.models.length < 2 ? "edit" : this.models.every((one) => one.steps.length) ? "training" : "compare";
    this.frame();
    this.restoring = this.state.edits || null;
    this.listen = () => { const given = this.model.get("state"); if (given && JSON.stringify(given) !== this.saved) { this.state = { ...START, view: this.state.view, ...given }; this.restoring = given.edits || {}; this.show(); } };
    this.model.on("change:state", this.listen);
    await this.show();
    this.loadTexts();
  }

  get models() { return this.overview.models; }
  get views() {
    const several = this.editors[0]?.view ? this.editors[0].view.layers * this.editors[0].view.heads > 1 : false;
    return [["edit", "Edit attention"], (several || this.state.view === "heads") && ["heads", "Heads"], this.models.some((one) => one.steps.length) && ["training", "Training"], this.models.length > 1 && ["compare", "Compare"]].filter(Boolean);
  }

  // The models on display.
  get shown() {
    const both = [0, 1].filter((i) => i < this.models.length);
    if (this.state.view === "compare") return both;
    if (this.state.view === "training") { const trained = both.filter((i) => this.models[i].steps.length); return trained.length ? trained : [0]; }
    return [this.state.model];
  }

  frame() {
    this.tabs = make("div", { class: "row", role: "tablist", "aria-label": "Views" });
    this.verdicts = make("div", { class: "verdicts" });
    this.undoButton = make("button", { type: "button", onclick: () => this.undo(this.past, this.future) }, "Undo");
    this.redoButton = make("button", { type: "button", onclick: () => this.undo(this.future, this.past) }, "Redo");
    this.resetButton = make("button", { type: "button", onclick: () => this.reset() }, "Reset");
    this.export = make("select", { "aria-label": "Export the view", onchange: (event) => { const kind = event.target.value; event.target.value = ""; if (kind) this.save(kind); } },
      make("option", { value: "" }, "Export …"), ...["PNG", "SVG", "CSV", "JSON"].map((kind) => make("option", { value: kind.toLowerCase() }, kind)));
    this.list = make("ul", { "aria-label": "Texts" });
    this.panel = make("div", { class: "card", role: "region" });
    this.place = make("div", { class: "editors" });
    this.help = make("p", { class: "small quiet", id: `${this.id}-help` }, "Drag a bar up or down: the other weights are rescaled. Grey: the model's own weights. Keys: ← → choose a token, ↑ ↓ change its weight (Shift or Page: ten times as much), Enter: only this token, Delete: without it; Ctrl+Z undoes.");
    this.body = make("div", { class: "body" }, this.textPanel(), make("div", { class: "main" }, this.panel, this.place,
      this.help));
    this.root.replaceChildren(this.root.firstChild,
      make("header", { class: "top" },
        make("div", { class: "row", style: "justify-content: space-between" }, make("h1", {}, "attnscope explorer ", make("span", { class: "quiet", style: "font-weight: 400" }, this.models.map((one) => one.name).join(" and "))),
          this.tabs, make("div", { class: "row" }, this.undoButton, this.redoButton, this.resetButton, this.export)),
        this.verdicts),
      this.body);
    this.root.addEventListener("keydown", (event) => {
      if (!(event.ctrlKey || event.metaKey) || /TEXTAREA|INPUT/.test(event.target.tagName)) return;
      const undo = event.key === "z" && !event.shiftKey, redo = event.key === "y" || (event.key.toLowerCase() === "z" && event.shiftKey);
      if (undo) this.undo(this.past, this.future);
      if (redo) this.undo(this.future, this.past);
      if (undo || redo) event.preventDefault();
    });
  }

  // Texts

  textPanel() {
    this.search = make("input", { type: "search", placeholder: "Search", "aria-label": "Search texts", oninput: () => this.drawTexts() });
    this.order = make("select", { "aria-label": "Sort texts", onchange: () => this.drawTexts() }, make("option", { value: "" }, "in their order"));
    const own = make("textarea", { "aria-label": "A text of your own", placeholder: "Type or paste a text of your own", maxlength: 20000 });
    const live = this.model.get("host") !== "static";
    if (typeof this.state.text === "string") own.value = this.state.text;
    const read = make("button", { type: "button", disabled: !live, onclick: () => { if (own.value.trim()) this.pick({ text: own.value.trim(), row: 0 }); } }, "Read this text");
    return make("aside", { class: "texts card", "aria-label": "Texts" }, make("h2", {}, "Texts"), this.search, this.order, this.list, own, read,
      !live && make("p", { class: "small quiet" }, "A text of your own needs the model: attnscope explore MODEL"));
  }

  async loadTexts() {
    const { model } = this.state;
    this.list.replaceChildren(make("li", { class: "quiet" }, "Loading …"));
    let rows;
    try {
      rows = (await this.client.once({ kind: "texts", model })).texts;
    } catch (error) { if (model === this.state.model) this.list.replaceChildren(make("li", { class: "error" }, error.message)); return; }
    if (model !== this.state.model) return;
    this.rows = rows;
    const measured = Object.keys(MEASURES).filter((name) => this.rows.some((row) => typeof row[name] === "number"));
    this.order.replaceChildren(make("option", { value: "" }, "Sort: as given"), ...measured.flatMap((name) => [make("option", { value: `-${name}` }, `highest ${MEASURES[name][0]}`), make("option", { value: `+${name}` }, `lowest ${MEASURES[name][0]}`)]),
      ...(this.rows.some((row) => row.gold) ? [make("option", { value: "wrong" }, "wrong ones first")] : []));
    this.drawTexts();
  }

  drawTexts() {
    if (!this.rows) return;
    const query = this.search.value.toLowerCase(), order = this.order.value;
    let rows = this.rows.map((row, text) => ({ ...row, number: text })).filter((row) => `${row.text} ${row.predicted}`.toLowerCase().includes(query));
    if (order === "wrong") rows.sort((a, b) => (a.gold === a.predicted) - (b.gold === b.predicted));
    else if (order) { const name = order.slice(1), sign = order[0] === "-" ? -1 : 1; rows.sort((a, b) => sign * ((a[name] ?? -1) - (b[name] ?? -1))); }
    const stored = this.model.get("host") === "static" ? this.model.get("stored") : Infinity;
    this.list.replaceChildren(...rows.filter((row) => row.number < stored).map((row) => make("li", {}, make("button", { type: "button", "aria-pressed": String(row.number === this.state.text), onclick: () => this.pick({ text: row.number, row: 0 }) },
      make("span", { class: "said" }, row.text),
      make("span", { class: "facts num" }, make("span", {}, row.predicted.length > 24 ? `${row.predicted.slice(0, 23)}…` : row.predicted), row.gold !== null && row.gold !== row.predicted && make("b", {}, "wrong"),
        ...Object.entries(MEASURES).filter(([name]) => typeof row[name] === "number").map(([name, [short, long]]) => make("span", { title: long }, `${short} ${number(row[name], 2)}`)))))));
    if (!rows.length) this.list.replaceChildren(make("li", { class: "quiet" }, "No text matches."));
  }

  // State

  async pick(changes) {
    const other = ["text", "step", "view", "model"].some((name) => name in changes && changes[name] !== this.state[name]);
    if ("text" in changes || "model" in changes) { this.past = []; this.future = []; this.current = this.restoring = null; for (const editor of this.editors) { editor.edits = new Map(); editor.presets = new Map(); } }
    Object.assign(this.state, changes);
    this.remember();
    if ("model" in changes) this.loadTexts();
    if (other) { await this.show(); this.drawTexts(); return; }
    for (const editor of this.editors) {
      if (!editor.view || editor.loading) continue;
      if ("layer" in changes) editor.layer = changes.layer;
      if ("head" in changes) editor.head = editor.view.heads === 1 ? null : changes.head;
      if ("joined" in changes) editor.group();
      if ("joined" in changes || "layer" in changes || "head" in changes) editor.draw();
      editor.refresh(); editor.drawStrips(); editor.recompute();
    }
    this.drawPanel();
  }

  async show() {
    const wanted = this.shown, turn = ++this.turn;
    if (wanted.join() !== this.editors.map((editor) => editor.index).join()) {
      this.editors = wanted.map((index) => this.editors.find((editor) => editor.index === index) || new Editor(this, index));
      this.place.replaceChildren(...this.editors.map((editor) => editor.node));
    }
    this.place.classList.toggle("two", wanted.length > 1);
    this.body.classList.toggle("two", wanted.length > 1);
    for (const editor of this.editors) editor.suspend();
    this.drawVerdicts();
    const differ = await this.tokensDiffer(wanted);
    if (turn !== this.turn) return;
    this.differ = differ;
    await Promise.all(this.editors.map((editor) => editor.load()));
    if (turn !== this.turn) return; // another text or view was picked meanwhile
    if (this.restoring) { this.restore(this.restoring); this.restoring = null; }
    this.drawTabs(); this.drawPanel(); this.drawHistory();
  }

  // Two models are shown word by word where their tokens differ.
  async tokensDiffer(wanted) {
    if (wanted.length < 2) return false;
    try {
      const [one, two] = await Promise.all(wanted.map((model) => this.client.once({ kind: "view", model, step: this.state.step, text: this.state.text })));
      return one.tokens.join("\n") !== two.tokens.join("\n") && one.words.filter((_, i) => i).length > 0;
    } catch { return false; /* the editors say what is wrong */ }
  }

  remember() {
    const edits = {};
    this.editors.forEach((editor) => { edits[editor.index] = Object.fromEntries([...editor.edits].map(([place, weights]) => [place, base64(weights)])); });
    const state = { ...this.state, edits };
    this.saved = JSON.stringify(state);
    this.model.set("state", state);
    this.model.save_changes();
  }

  restore(edits) {
    for (const editor of this.editors.filter((each) => each.view)) {
      const given = Object.entries(edits[editor.index] || {}).map(([place, text]) => [place, fromBase64(text)]);
      editor.edits = new Map(given.filter(([, weights]) => weights.length === editor.source));
      editor.presets = new Map(); editor.refresh(); editor.recompute();
    }
    this.current = this.snapshot(); this.remember();
  }

  snapshot() { return this.editors.map((editor) => [editor.index, editor.edits, editor.presets]); }

  // After a change: what was before can be undone. Changes of the same kind in a row are one.
  commit(kind = null) {
    if (kind === null || kind !== this.kind) this.past.push(this.current || this.editors.map((editor) => [editor.index, new Map(), new Map()]));
    this.kind = kind; this.current = this.snapshot(); this.future = [];
    if (this.past.length > 200) this.past.shift();
    this.drawHistory(); this.remember();
  }

  undo(from, to) {
    if (!from.length) return;
    to.push(this.snapshot()); this.kind = null;
    this.current = from.pop();
    for (const editor of this.editors.filter((each) => each.view)) {
      const [, edits, presets] = this.current.find(([index]) => index === editor.index) || [null, new Map(), new Map()];
      editor.edits = edits; editor.presets = presets; editor.note(""); editor.refresh(); editor.recompute(true);
    }
    this.drawHistory(); this.remember();
  }

  reset() {
    const editors = this.editors.filter((editor) => editor.view);
    for (const editor of editors) { editor.edits = new Map(); editor.presets = new Map(); editor.note(""); }
    this.commit();
    for (const editor of editors) { editor.refresh(); editor.recompute(true); }
  }

  drawHistory() {
    this.undoButton.disabled = !this.past.length; this.redoButton.disabled = !this.future.length;
    this.resetButton.disabled = !this.editors.some((editor) => editor.edits.size);
  }

  // Verdicts and tabs

  drawVerdicts() { this.verdicts.classList.toggle("two", this.shown.length > 1); this.verdicts.replaceChildren(...this.shown.map((index) => this.verdict(index))); }

  verdict(index) {
    const { verdict, name } = this.models[index], asked = `May the attention of ${name} be read as an explanation?`;
    if (!verdict) return (this.boxes[index] ??= this.unaudited(index, asked)); // kept while an audit is running
    return make("section", { class: `verdict ${verdict.answer.replace(" ", "-")}`, "aria-label": `Verdict on ${name}` },
      make("details", {}, make("summary", {}, `${this.shown.length > 1 ? `${name}: may` : "May"} its attention be read as an explanation? `, make("span", { class: "answer" }, verdict.answer), make("span", { class: "headline" }, ` ${verdict.headline}`)),
        ...verdict.tests.map((test) => make("p", {}, make("b", {}, `${test.name} (${test.answer}): `), test.sentence || ""))),
      make("ul", { class: "small num" }, ...verdict.tests.map((test) => make("li", { title: test.question || null }, `${test.name} `, make("b", {}, number(test.value, 2)), ` (${test.answer})`)), make("li", { class: "quiet" }, `${verdict.quick ? "quick audit" : "audit"}${verdict.texts ? ` on up to ${verdict.texts} texts` : ""}`)));
  }

  unaudited(index, asked) {
    const live = this.model.get("host") !== "static", status = make("span", { class: "small", role: "status" });
    const button = make("button", { type: "button", disabled: !live, onclick: async () => {
      button.disabled = true;
      const bar = make("progress", { "aria-label": "Progress of the audit", max: 1, value: 0 });
      box.append(bar);
      try {
        const answer = await this.client.ask({ kind: "audit", model: index }, [], (done, total, title) => { bar.max = total; bar.value = done; status.textContent = ` ${title}: ${done} of ${total} texts`; });
        this.models[index].verdict = answer.verdict; this.drawVerdicts();
      } catch (error) { bar.remove(); status.textContent = ` ${error.message}`; button.disabled = false; }
    } }, "Run the quick audit");
    const box = make("section", { class: "verdict", "aria-label": "Verdict" }, make("div", { class: "row" }, make("span", {}, asked, " ", make("b", {}, "Not audited.")), live ? button : make("span", { class: "small" }, "Run: attnscope audit"), status));
    return box;
  }

  drawTabs() {
    this.tabs.replaceChildren(...this.views.map(([view, name]) => make("button", { type: "button", role: "tab", "aria-selected": String(view === this.state.view), tabindex: view === this.state.view ? 0 : -1,
      onclick: () => this.pick({ view, step: view === "training" ? this.state.step : null }), onkeydown: (event) => {
        const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key], tabs = [...this.tabs.children];
        if (by) { event.preventDefault(); tabs[(tabs.indexOf(event.target) + by + tabs.length) % tabs.length].focus(); }
      } }, name)));
    this.switch?.remove();
    if (this.models.length > 1 && this.shown.length === 1) {
      this.switch = make("label", { class: "field" }, "Model", make("select", { "aria-label": "Model", onchange: (event) => this.pick({ model: Number(event.target.value) }) }, ...this.models.map((one, i) => make("option", { value: i, selected: i === this.state.model }, one.name))));
      this.tabs.after(this.switch);
    }
  }

  drawPanel() {
    const panels = { heads: () => this.drawHeads(), training: () => this.drawTraining() };
    ++this.panelTurn; // what other views still wait for is not drawn
    this.panel.hidden = !(this.state.view in panels);
    if (panels[this.state.view]) panels[this.state.view](); else this.panel.replaceChildren();
  }

  // Heads

  async drawHeads() {
    const editor = this.editors[0], turn = ++this.panelTurn;
    if (!editor.view) return;
    this.panel.setAttribute("aria-label", "Heads");
    const request = { kind: "heads", model: this.state.model, step: this.state.step };
    if (!this.client.cache.has(key(request))) this.panel.replaceChildren(make("p", { class: "quiet" }, "Measuring every head …"));
    let answer;
    try { answer = await this.client.once(request); } catch (error) { answer = { error }; }
    if (turn !== this.panelTurn || !editor.view) return;
    if (answer.error) { this.panel.replaceChildren(make("p", { class: "error" }, answer.error.message)); return; }
    const names = [...answer.statistics, "kind of head"], chosen = this.statistic ?? 0, { layers, heads, first } = editor.view;
    const values = answer.tensors[0], offset = chosen * layers * heads, kinds = [...new Set(answer.kinds)];
    const range = chosen < answer.statistics.length ? [...values.slice(offset, offset + layers * heads)].filter(Number.isFinite) : [0, 1];
    const low = Math.min(...range), high = Math.max(...range);
    const cell = (layer, head) => {
      const index = layer * heads + head, value = values[offset + index], kind = answer.kinds[index];
      const share = chosen < answer.statistics.length ? (value - low) / (high - low || 1) : kinds.indexOf(kind) / Math.max(1, kinds.length - 1);
      const shown = chosen < answer.statistics.length ? number(value, 2) : kind, canvas = make("canvas", { "aria-hidden": "true" });
      const button = make("button", { type: "button", "aria-pressed": String(editor.layer === layer && editor.head === head), title: `layer ${layer}, head ${head}: ${kind}`, "aria-label": `layer ${layer}, head ${head}: ${names[chosen]} ${shown}, kind ${kind}`, onclick: () => this.pick({ layer, head: heads === 1 ? null : head }) }, canvas, shown);
      button.style.background = `color-mix(in srgb, var(--mine) ${Math.round(45 * (Number.isFinite(share) ? share : 0))}%, var(--card))`;
      if (layer >= first) profile(canvas, editor, layer, head);
      return make("td", {}, button);
    };
    this.panel.replaceChildren(
      make("div", { class: "row" }, make("h2", {}, "Heads"), make("label", { class: "field" }, "Statistic", make("select", { "aria-label": "Statistic", onchange: (event) => { this.statistic = Number(event.target.value); this.drawHeads(); } }, ...names.map((name, i) => make("option", { value: i, selected: i === chosen }, name)))),
        make("span", { class: "small quiet" }, `Means over up to ${Math.min(48, answer.texts)} texts (ablation: ${Math.min(12, answer.texts)}). ${answer.kinds.some((kind) => kind.endsWith(answer.confirmed)) ? `Kinds marked ${answer.confirmed} are confirmed by ablation on repeated random tokens; the others are` : "Kinds are"} by rule: where most weight goes, on average. Pick a head to edit it; the pictures show this text.`)),
      make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Layers and heads" }, make("table", { class: "headgrid" },
        make("thead", {}, make("tr", {}, make("th", { scope: "col" }, make("span", { class: "hidden" }, "layer")), ...[...Array(heads).keys()].map((head) => make("th", { scope: "col" }, `head ${head}`)))),
        make("tbody", {}, ...[...Array(layers).keys()].map((layer) => make("tr", {}, make("th", { scope: "row" }, `layer ${layer}`), ...[...Array(heads).keys()].map((head) => cell(layer, head))))))));
  }

  // Training

  async drawTraining() {
    const trained = this.shown.filter((index) => this.models[index].steps.length), turn = ++this.panelTurn;
    if (!trained.length) { this.panel.replaceChildren(make("p", { class: "quiet" }, "This model has no checkpoints.")); return; }
    this.panel.setAttribute("aria-label", "Training");
    const steps = [...new Set(trained.flatMap((index) => this.models[index].steps))].sort((a, b) => a - b);
    let courses;
    try { courses = await Promise.all(trained.map((model) => this.client.once({ kind: "training", model }))); } catch (error) { if (turn === this.panelTurn) this.panel.replaceChildren(make("p", { class: "error" }, error.message)); return; }
    if (turn !== this.panelTurn) return;
    const at = this.state.step === null ? steps.length : steps.indexOf(this.state.step), choose = (i) => this.pick({ step: i >= steps.length ? null : steps[i] });
    const named = (i) => (i >= steps.length ? "final weights" : `step ${steps[i]}`);
    if (!this.slider || !this.panel.contains(this.slider)) {
      this.slider = make("input", { type: "range", min: 0, max: steps.length, step: 1, "aria-label": "Training step", oninput: (event) => choose(Number(event.target.value)) });
      this.play = make("button", { type: "button", onclick: () => this.playing(steps, choose) }, "Play");
      this.stepName = make("span", { class: "num" }); this.plots = make("div", { class: `editors ${trained.length > 1 ? "two" : ""}`, style: "margin-top: 10px" });
      this.panel.replaceChildren(make("div", { class: "row" }, make("h2", {}, "Training"), this.play, this.slider, this.stepName), this.plots);
    }
    this.slider.value = at; this.slider.setAttribute("aria-valuetext", named(at)); this.stepName.textContent = named(at);
    const figures = await Promise.all(trained.map((model, i) => this.trainingPlots(model, courses[i], at)));
    if (turn !== this.panelTurn) return;
    this.plots.replaceChildren(...figures.map((each) => make("div", { class: "plots" }, ...each)));
    this.plots.querySelectorAll("canvas").forEach((canvas) => canvas.draw());  // in the colours of their place
  }

  async trainingPlots(index, course, at) {
    const { log, steps } = course, name = this.models[index].name, last = log.step.at(-1), marker = this.state.step ?? last;
    const curve = log.word_accuracy || log.final_accuracy, editor = this.editors.find((each) => each.index === index), found = [];
    const figure = (caption, ...nodes) => make("figure", {}, make("figcaption", {}, caption), ...nodes);
    if (curve) found.push(figure(`${name}: accuracy over training`, chart([["accuracy", "--mine", log.step.map((step, i) => [step, curve[i] ?? NaN])]], { marker, label: `Accuracy of ${name} at each evaluation; marker at step ${marker}` })));
    if (course.tensors.length === 2) {
      const here = this.state.step === null ? steps.length - 1 : steps.indexOf(this.state.step);
      if (here >= 0) found.push(figure("temporal components of encoder (orange) and decoder (purple)", this.temporal(course, here, name)));
    }
    if (editor?.view && !editor.view.classifies) {
      try {
        const answer = await this.client.once({ kind: "scores", names: ["β"], ...editor.place });
        if (answer.names.length) {
          const canvas = make("canvas", { role: "img", "aria-label": `β of ${name}: the probability of each output token given each source token alone` }), size = editor.source, values = answer.tensors[0];
          found.push(figure(`${name}: β, each source token alone`, canvas));
          canvas.draw = () => drawHeat(canvas, [...Array(editor.rows).keys()].map((row) => values.slice(row * size, (row + 1) * size)), editor.view.targets, editor.view.tokens, Math.max(5, Math.min(10, Math.floor(190 / size))));
        }
      } catch { /* a static page may hold none */ }
    }
    return found;
  }

  temporal(course, here, name) {
    const [encoder, decoder] = course.tensors, shape = course.shapes;
    const points = (side, which) => { const count = shape[which][1], start = here * count * 2; return [...Array(count).keys()].map((i) => [side[start + 2 * i], side[start + 2 * i + 1]]); };
    return chart([["encoder", "--minus", points(encoder, 0)], ["decoder", "--mine", points(decoder, 1)]], { width: 230, height: 190, square: true, numbers: false, label: `Temporal components of ${name}: mean keys and queries at each position, first two principal components of the last checkpoint` });
  }

  playing(steps, choose) {
    this.isPlaying = !this.isPlaying; this.play.textContent = this.isPlaying ? "Pause" : "Play"; clearTimeout(this.timer);
    let at = this.state.step === null ? 0 : steps.indexOf(this.state.step);
    const next = async () => {
      if (this.isPlaying) await choose(at);
      if (this.isPlaying && at++ < steps.length && this.state.view === "training") this.timer = setTimeout(next, 450);
      else { this.isPlaying = false; this.play.textContent = "Play"; }
    };
    if (this.isPlaying) next();
  }

  // Export

  save(kind) {
    if (!this.editors.every((editor) => editor.view)) return;
    const name = `attnscope-${typeof this.state.text === "number" ? this.state.text : "text"}`;
    if (kind === "svg") return this.download(`${name}.svg`, new Blob([this.picture()], { type: "image/svg+xml" }));
    if (kind === "csv") return this.download(`${name}.csv`, new Blob([this.table()], { type: "text/csv" }));
    if (kind === "json") {
      const content = this.editors.map((each) => ({ model: this.models[each.index].name, verdict: this.models[each.index].verdict?.answer ?? null, ...each.place, layer: each.layer, head: each.head, row: each.row, tokens: each.view.tokens, targets: each.view.targets, own: [...each.ownWeights()], weights: [...each.weights()], scores: Object.fromEntries([...each.scores].map(([score, values]) => [score, [...values.subarray(each.row * each.source, (each.row + 1) * each.source)]])), tvd: each.outcome?.tvd ?? null, outputs: each.outcome?.table ?? null }));
      return this.download(`${name}.json`, new Blob([JSON.stringify(content, null, 1)], { type: "application/json" }));
    }
    const image = new Image();
    image.onload = () => {
      const canvas = make("canvas", { width: image.width * 2, height: image.height * 2 }), context = canvas.getContext("2d");
      context.scale(2, 2); context.drawImage(image, 0, 0);
      canvas.toBlob((blob) => this.download(`${name}.png`, blob));
    };
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(this.picture())}`;
  }

  download(name, blob) {
    const link = make("a", { href: URL.createObjectURL(blob), download: name, class: "hidden", tabindex: -1 });
    this.root.append(link); link.click();
    setTimeout(() => { URL.revokeObjectURL(link.href); link.remove(); }, 2000);
  }

  table() {
    const quote = (text) => `"${String(text).replace(/"/g, '""').replace(/^([=+\-@])/, "'$1")}"`, lines = [];
    for (const editor of this.editors) {
      const names = [...editor.scores.keys()], own = editor.ownWeights(), now = editor.weights();
      if (!lines.length) lines.push(["model", "position", "token", "own weight", "weight", ...names].join(","));
      editor.view.tokens.forEach((token, i) => lines.push([quote(this.models[editor.index].name), i, quote(token), own[i], now[i], ...names.map((name) => editor.scores.get(name)[editor.row * editor.source + i])].join(",")));
    }
    return `${lines.join("\n")}\n`;
  }

  // The editors as one SVG drawing, in the light colours.
  picture() {
    const width = 900, colours = { ink: "#1f2328", quiet: "#59606a", own: "#c9ced5", mine: "#5e3c99" };
    const drawing = make("svg:svg", { xmlns: SVG, width, "font-family": "system-ui, sans-serif", "font-size": 13 }), text = (x, y, content, more = {}) => drawing.append(make("svg:text", { x, y, fill: colours.ink, ...more }, content));
    const block = (x, y, w, h, fill) => drawing.append(make("svg:rect", { x, y, width: Math.max(0, w), height: Math.max(0, h), fill }));
    let y = 30;
    for (const editor of this.editors) {
      const { verdict, name } = this.models[editor.index], own = editor.ownWeights(), now = editor.weights(), scale = editor.scale();
      text(20, y, name, { "font-size": 16, "font-weight": 600 }); y += 22;
      text(20, y, verdict ? `May its attention be read as an explanation? ${verdict.answer}. ${verdict.tests.map((test) => `${test.name} ${number(test.value, 2)}`).join(", ")}` : "Not audited.", { fill: colours.quiet }); y += 14;
      let x = 20;
      editor.groups.forEach((_, cell) => {
        const label = visible(editor.names[cell]), w = Math.max(26, 7.4 * label.length + 8);
        if (x + w > width - 20) { x = 20; y += 104; }
        const a = 70 * Math.min(1, editor.cellWeight(own, cell) / scale), b = 70 * Math.min(1, editor.cellWeight(now, cell) / scale);
        block(x + w / 2 - 11, y + 74 - a, 22, a, colours.own); block(x + w / 2 - 8, y + 74 - b, 16, b, colours.mine); block(x + w / 2 - 11, y + 74, 22, 1.5, colours.quiet);
        text(x + w / 2, y + 90, label, { "text-anchor": "middle" }); x += w + 3;
      });
      y += 120;
      for (const [output, before, after] of likeliest(editor.outcome?.table ?? [])) {
        text(20, y, visible(output)); block(170, y - 10, 300 * before, 5, colours.own); block(170, y - 4, 300 * after, 5, colours.mine);
        text(490, y, `before ${number(before)}  after ${number(after)}`, { fill: colours.quiet }); y += 20;
      }
      text(20, y, `Change of the output (TVD): ${number(editor.outcome?.tvd[editor.row])}`); y += 36;
    }
    drawing.setAttribute("height", y); drawing.setAttribute("viewBox", `0 0 ${width} ${y}`);
    drawing.prepend(make("svg:rect", { width, height: y, fill: "#ffffff" }));
    return new XMLSerializer().serializeToString(drawing);
  }

  close() { clearTimeout(this.timer); if (this.listen) this.model.off("change:state", this.listen); this.client.close(); this.root.remove(); }
}

// A small picture of one head's attention: bars, or the matrix.
function profile(canvas, editor, layer, head) {
  const rows = editor.rows, size = editor.source, width = 44, height = 22, ratio = 2, context = canvas.getContext("2d");
  canvas.width = width * ratio; canvas.height = height * ratio; canvas.style.width = `${width}px`; canvas.style.height = `${height}px`;
  context.fillStyle = getComputedStyle(editor.node).getPropertyValue("--ink") || "#333"; context.scale(ratio, ratio);
  for (let row = 0; row < rows; row++) {
    const weights = editor.ownWeights(row, layer, head), top = Math.max(...weights);
    weights.forEach((weight, i) => {
      if (rows === 1) { context.fillRect((i * width) / size, height * (1 - weight / top), Math.max(0.5, width / size - 0.3), (height * weight) / top); return; }
      context.globalAlpha = Math.min(1, weight); context.fillRect((i * width) / size, (row * height) / rows, width / size, height / rows);
    });
  }
}

function render({ model, el }) {
  const app = new App(model, el);
  app.start();
  return () => app.close();
}

const explorer = { render };
export default explorer;
