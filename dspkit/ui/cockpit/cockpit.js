// The cockpit: the graph of operators as an instrument, tiles, linked charts and decisions of one run.
//
// A `Store` holds what the browser has of the runs, and pulls the rest: it asks for windows, and asks again once they
// are drawn. A `View` draws a store. Both know only a `port` (get, send, hear, listen), which is a widget's model in a
// notebook, and a recording in a report. Text from data is set as text, never as HTML.

const COLUMN = 168, ROW = 116, RADIUS = 24;  // of the graph, in its own units
const FRAME_MS = 40, SPEED = 90, DENSEST = 14;  // of the records: 25 frames/s, units/s, dots/s on the fastest edge
const PANEL = 112, GAP = 38, LEFT = 58, TOP = 18, FOOT = 34;  // of the charts, in pixels
const BETWEEN = "\u0000";  // the names of two machines
const KNOWN = 12;  // operators up to which each line of a chart has its own colour and name

// ---------------------------------------------------------------------------------------------------- pure functions

export function si(value, digits = 3) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  for (const [limit, letter] of [[1e9, " G"], [1e6, " M"], [1e3, " k"]])
    if (Math.abs(value) >= limit * 0.9995) return plain(value / limit, digits) + letter;
  return plain(value, digits);
}

function plain(value, digits) {
  return String(Number(value.toPrecision(digits)));
}

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  return value < 1 ? `${plain(value * 1000, 3)} ms` : `${plain(value, 3)} s`;
}

export function percent(value) {
  return value === null || value === undefined ? "–" : `${Math.round(value * 100)} %`;
}

export function ticks(top, most = 4) {
  // round numbers from 0 to `top`, at most `most` steps
  if (!(top > 0)) return [0];
  const raw = top / most, base = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * base).find((s) => top / s <= most + 1e-9);
  return Array.from({ length: Math.floor(top / step + 1e-9) + 1 }, (_, i) => Number((i * step).toPrecision(12)));
}

export function scale(from, to, low, high) {
  const width = to - from || 1;
  return (value) => low + ((value - from) / width) * (high - low);
}

export function nearest(rows, t) {
  // index of the row whose time is nearest to t, by bisection
  let low = 0, high = rows.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rows[middle].t < t) low = middle + 1; else high = middle;
  }
  return low > 0 && t - rows[low - 1].t < rows[low].t - t ? low - 1 : low;
}

function mean(values) {
  const known = values.filter((v) => v !== null && v !== undefined);
  return known.length ? known.reduce((sum, v) => sum + v, 0) / known.length : null;
}

export function average(rows) {
  // several windows as one: means, and the deployment of the last
  const last = rows[rows.length - 1];
  if (rows.length < 2) return last;
  const ops = last.ops.map((op, i) => {
    const merged = { ...op };
    for (const name of ["in", "done", "out", "can", "busy", "wait", "blocked", "cpu", "asked"]) {
      const value = mean(rows.map((row) => row.ops[i][name]));
      if (value !== null) merged[name] = value;
    }
    return merged;
  });
  const latencies = rows.map((row) => row.lat).filter(Boolean);
  return {
    ...last, ops,
    in: mean(rows.map((r) => r.in)), out: mean(rows.map((r) => r.out)), lag: mean(rows.map((r) => r.lag)),
    n: mean(rows.map((r) => r.n)), down: rows.reduce((sum, r) => sum + r.down, 0),
    lat: latencies.length ? [0, 1, 2, 3].map((i) => mean(latencies.map((l) => l[i]))) : null,
    edges: last.edges.map((_, i) => mean(rows.map((r) => r.edges[i]))),
  };
}

export function cost(rows, upTo, from = 0) {
  // instance-seconds of these windows
  let total = 0;
  for (let i = from; i <= upTo && i < rows.length; i++) total += rows[i].n * rows[i].dt;
  return total;
}

export function pressured(scene, row) {
  // edges whose sender is blocked by their receiver: the busiest or fullest of those that it sends to
  const found = new Set();
  scene.nodes.forEach((_, u) => {
    if (!(row.ops[u]?.blocked > 0.05)) return;
    const out = scene.edges.map((e, i) => [e, i]).filter(([e]) => e.from === u);
    const load = ([e]) => Math.max(row.ops[e.to]?.busy ?? 0, row.ops[e.to]?.blocked ?? 0);
    const most = Math.max(0, ...out.map(load));
    for (const pair of out) if (load(pair) >= most - 0.02) found.add(pair[1]);
  });
  return found;
}

export function shorten(name, letters) {
  return name.length <= letters ? name : `${name.slice(0, Math.max(1, letters - 1))}…`;
}

export function thin(n, most) {
  // indices of about `most` of n points, with the first and the last
  if (n <= most) return Array.from({ length: n }, (_, i) => i);
  const every = n / most, found = [];
  for (let i = 0; i < most; i++) found.push(Math.floor(i * every));
  if (found[found.length - 1] !== n - 1) found.push(n - 1);
  return found;
}

export function curve(points) {
  // a smooth way through points that go from left to right, as an SVG path
  let path = `M${points[0][0]},${points[0][1]}`;
  for (let i = 1; i < points.length; i++) {
    const [[a, b], [c, d]] = [points[i - 1], points[i]], bend = (c - a) / 2;
    path += `C${a + bend},${b} ${c - bend},${d} ${c},${d}`;
  }
  return path;
}

export function sampled(points, steps = 14) {
  // the same way as points with the length so far
  const found = [[...points[0], 0]];
  for (let i = 1; i < points.length; i++) {
    const [[a, b], [c, d]] = [points[i - 1], points[i]], bend = (c - a) / 2;
    for (let s = 1; s <= steps; s++) {
      const t = s / steps, u = 1 - t;
      const x = u ** 3 * a + 3 * u * u * t * (a + bend) + 3 * u * t * t * (c - bend) + t ** 3 * c;
      const y = u ** 3 * b + 3 * u * u * t * b + 3 * u * t * t * d + t ** 3 * d;
      const [px, py, length] = found[found.length - 1];
      found.push([x, y, length + Math.hypot(x - px, y - py)]);
    }
  }
  return found;
}

export function along(way, length) {
  // the point of a sampled way at this length
  let low = 1, high = way.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (way[middle][2] < length) low = middle + 1; else high = middle;
  }
  const [a, b] = [way[low - 1], way[low]], part = (length - a[2]) / (b[2] - a[2] || 1);
  return [a[0] + (b[0] - a[0]) * part, a[1] + (b[1] - a[1]) * part];
}

export function laidOut(scene) {
  // the scene in the graph's units: places of operators, and the way of each edge
  const place = scene.nodes.map((n) => [n.x * COLUMN, n.y * ROW]);
  const ways = scene.edges.map((e) => {
    const [[a, b], [c, d]] = [place[e.from], place[e.to]];
    return [[a + RADIUS + 5, b], ...e.bends.map(([x, y]) => [x * COLUMN, y * ROW]), [c - RADIUS - 11, d]];
  });
  const points = [...place, ...ways.flat()];
  const [xs, ys] = [points.map((p) => p[0]), points.map((p) => p[1])];
  const box = [Math.min(...xs) - 78, Math.min(...ys) - 58, Math.max(...xs) + 70, Math.max(...ys) + 80];
  return { place, ways, box };
}

export function spread(names, delays) {
  // places of machines in a square of side 2 around 0: as far apart as their delays, or on a circle where none is known
  const at = names.map((_, i) => [Math.cos(2 * Math.PI * (i / names.length + 0.02)), Math.sin(2 * Math.PI * (i / names.length + 0.02))]);
  const known = (delays ?? []).map(([a, b, delay]) => [names.indexOf(a), names.indexOf(b), delay]).filter(([a, b]) => a >= 0 && b >= 0 && a !== b);
  const most = Math.max(0, ...known.map(([, , delay]) => delay));
  if (names.length < 3 || !most) return at;
  for (let turn = 0; turn < 300; turn++) {
    const step = 0.2 * (1 - turn / 300);
    for (const [a, b, delay] of known) {  // each pair moves towards its distance, but not onto each other
      const [dx, dy] = [at[b][0] - at[a][0], at[b][1] - at[a][1]], now = Math.hypot(dx, dy) || 1e-6;
      const pull = (step * (now - Math.max(0.5, (2 * delay) / most))) / now / 2;
      at[a] = [at[a][0] + dx * pull, at[a][1] + dy * pull];
      at[b] = [at[b][0] - dx * pull, at[b][1] - dy * pull];
    }
  }
  const [xs, ys] = [at.map((p) => p[0]), at.map((p) => p[1])];
  const [cx, cy] = [(Math.min(...xs) + Math.max(...xs)) / 2, (Math.min(...ys) + Math.max(...ys)) / 2];
  const size = Math.max(Math.max(...xs) - cx, Math.max(...ys) - cy) || 1;
  return at.map(([x, y]) => [(x - cx) / size, (y - cy) / size]);
}

export function crossing(scene, row) {
  // records/s from machine to machine, if instances share their operator's work evenly: by their two names
  const total = {}, found = {};
  for (const place of row.places) for (const [name, n] of Object.entries(place.has)) total[name] = (total[name] ?? 0) + n;
  scene.edges.forEach((edge, e) => {
    const [u, v] = [scene.nodes[edge.from].name, scene.nodes[edge.to].name];
    if (!(row.edges[e] > 0) || !total[u] || !total[v]) return;
    for (const a of row.places) for (const b of row.places) {
      const part = ((a.has[u] ?? 0) / total[u]) * ((b.has[v] ?? 0) / total[v]);
      const key = [a.node, b.node].sort().join(BETWEEN);
      if (a !== b && part) found[key] = (found[key] ?? 0) + row.edges[e] * part;
    }
  });
  return found;
}

// ------------------------------------------------------------------------------------------------------------- store

export class Store {
  constructor(port) {
    this.port = port;
    this.client = Math.random().toString(36).slice(2);
    this.runs = new Map();
    this.views = new Set();
    this.drawn = [];  // milliseconds from the arrival of windows to their picture
    port.hear((message) => this.take(message));
    port.listen(["head", "scene", "status", "summary", "buttons"], () => this.changed());
    this.changed();
  }

  get head() { return this.port.get("head") ?? {}; }
  get scene() { const scene = this.port.get("scene"); return scene?.nodes ? scene : null; }

  run(id) { return this.runs.get(id) ?? { rows: [], notes: [] }; }
  get shown() { return this.run(this.head.run); }

  changed() {
    const known = new Set((this.head.runs ?? []).map((run) => run.id));
    for (const id of this.runs.keys()) if (!known.has(id)) this.runs.delete(id);
    if (this.head.run && !this.runs.has(this.head.run)) this.pull(this.head.run);
    this.redraw(true);
  }

  pull(id) {
    // ask for what this browser does not have of a run
    if (!this.runs.has(id)) this.runs.set(id, { rows: [], notes: [] });
    const { rows, notes } = this.runs.get(id);
    this.say({ type: "ready", client: this.client, run: id, rows: rows.length, notes: notes.length });
  }

  say(message) {
    try { this.port.send(message); } catch { /* the kernel has gone: the notebook says so itself */ }
  }

  take(message) {
    if (message?.client !== this.client) return;
    const run = this.runs.get(message.run);
    if (!run) return;
    if (message.type === "rows") {
      if (message.from === run.rows.length) run.rows.push(...message.rows);
      if (message.noted === run.notes.length) run.notes.push(...message.notes);
      const came = performance.now();
      this.redraw(false, () => {
        this.drawn.push(performance.now() - came);
        if (this.drawn.length > 500) this.drawn.shift();
        this.pull(message.run);
      });
    }
  }

  redraw(all, then) {
    // draw in the next frame; a hidden page has none, and so asks for nothing
    if (all) for (const view of this.views) view.stale = true;
    if (then) (this.waiting ??= []).push(then);
    if (this.pending || !this.views.size) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      for (const view of this.views) view.draw();
      const waiting = this.waiting ?? [];
      this.waiting = [];
      for (const each of waiting) each();
    });
  }
}

// ----------------------------------------------------------------------------------------------------------- elements

const SVG = "http://www.w3.org/2000/svg";

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") element.textContent = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

function draw(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function set(element, name, value) {
  if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

// -------------------------------------------------------------------------------------------------------------- graph

class Graph {
  constructor(view) {
    this.view = view;
    this.dots = [];
    this.top = 1;
    this.frames = 0;
    this.svg = draw("svg", { class: "ck-svg", role: "group", "aria-label": "graph of operators" });
    this.canvas = make("canvas", { class: "ck-dots", "aria-hidden": "true" });
    const tool = (text, said, act) => make("button", { type: "button", title: said, "aria-label": said, text, onclick: act });
    this.machines = tool("machines", "show the machines and what runs on them", () => view.toggleMachines());
    this.machines.setAttribute("aria-pressed", "false");
    const tools = make("div", { class: "ck-tools" },
      this.machines,
      tool("+", "zoom in", () => this.zoom(1.3)), tool("−", "zoom out", () => this.zoom(1 / 1.3)),
      tool("fit", "show the whole graph", () => { this.free = false; this.fit(); }),
      tool("SVG", "save the graph as SVG", () => this.save()));
    this.box = make("div", { class: "ck-graph" }, this.canvas, this.svg, tools);  // records run below operators and words
    this.box.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      this.zoom(event.deltaY < 0 ? 1.15 : 1 / 1.15, event.offsetX, event.offsetY);
    }, { passive: false });
    this.svg.addEventListener("pointerdown", (event) => this.hold(event));
    this.at = { s: 1, x: 0, y: 0 };
  }

  lay(scene) {
    this.scene = scene;
    this.layout = scene ? laidOut(scene) : null;
    this.free = false;
    this.dots = [];
    this.top = 1;
    this.svg.replaceChildren();
    if (!scene) return;
    const head = (id) => draw("marker", { id: `${this.view.name}-${id}`, viewBox: "0 0 8 8", refX: 1, refY: 4,
      markerWidth: 7, markerHeight: 7, orient: "auto", class: `ck-${id}` }, draw("path", { d: "M0,0L8,4L0,8z" }));
    this.world = draw("g");
    this.svg.append(draw("defs", {}, head("arrow"), head("pressed")), this.world);
    this.ways = this.layout.ways.map((way) => sampled(way));
    this.carry = scene.edges.map(() => 0);
    this.edges = scene.edges.map((edge, i) => {
      const [u, v] = [scene.nodes[edge.from].name, scene.nodes[edge.to].name];
      const line = draw("path", { class: "ck-edge", d: curve(this.layout.ways[i]) });
      const title = draw("title");
      title.textContent = `${u} → ${v}`;
      line.append(title);
      const label = draw("text", { class: "ck-rate", "text-anchor": "middle" });
      const way = this.ways[i], [x, y] = along(way, way[way.length - 1][2] * 0.47);
      this.world.append(line, label);
      return { line, label, title, x, y, name: `${u} → ${v}` };
    });
    this.nodes = scene.nodes.map((node, i) => this.node(node, i));
    this.world.append(...this.nodes.map((n) => n.group));
    this.fit();
  }

  node(node, i) {
    const [x, y] = this.layout.place[i];
    const shape = node.kind === "source" ? draw("rect", { x: -15, y: -15, width: 30, height: 30, rx: 6 })
      : node.kind === "sink" ? draw("path", { d: "M0,-18L18,0L0,18L-18,0z" }) : draw("circle", { r: 17 });
    shape.setAttribute("class", "ck-disc");
    const arc = (kind) => draw("circle", { r: RADIUS, class: `ck-arc ck-${kind}`, pathLength: 100, transform: "rotate(-90)",
      "stroke-dasharray": "0 100" });
    const parts = {
      idle: draw("circle", { r: RADIUS, class: "ck-arc ck-idle" }), busy: arc("busy"), blocked: arc("blocked"),
      bar: draw("rect", { x: -39, width: 7, y: 22, height: 0, class: "ck-backlog", rx: 1.5 }),
      frame: draw("rect", { x: -39, width: 7, y: -22, height: 44, class: "ck-backlog-frame", rx: 1.5 }),
      count: draw("text", { class: "ck-count", "text-anchor": "middle", y: 5 }),
      name: draw("text", { class: "ck-name", "text-anchor": "middle" }),
      more: draw("text", { class: "ck-more", "text-anchor": "middle" }),
      queue: draw("text", { class: "ck-more", "text-anchor": "middle" }),
      next: draw("text", { class: "ck-next", "text-anchor": "middle" }),
      title: draw("title"),
    };
    const group = draw("g", { class: "ck-node", transform: `translate(${x},${y})`, tabindex: 0, role: "button" },
      parts.title, draw("circle", { r: RADIUS + 9, class: "ck-focus" }), parts.idle, parts.busy, parts.blocked, shape,
      parts.frame, parts.bar, parts.count, parts.name, parts.more, parts.queue, parts.next);
    group.dataset.operator = node.name;
    group.addEventListener("keydown", (event) => this.key(event, i));
    return { group, ...parts };
  }

  key(event, i) {
    const { view } = this, act = {
      Enter: () => view.select(i), " ": () => view.select(i), Escape: () => view.select(null),
      "+": () => view.nudge(i, 1), "=": () => view.nudge(i, 1), "-": () => view.nudge(i, -1), "_": () => view.nudge(i, -1),
      ArrowUp: () => view.nudge(i, 1), ArrowDown: () => view.nudge(i, -1),
      ArrowRight: () => this.nodes[Math.min(i + 1, this.nodes.length - 1)].group.focus(),
      ArrowLeft: () => this.nodes[Math.max(i - 1, 0)].group.focus(),
    }[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  }

  hold(event) {
    // a press on an operator chooses it, or dragged up and down changes its instances; elsewhere it moves the graph
    if (event.button !== 0) return;
    const group = event.target.closest(".ck-node");
    const i = group ? this.nodes.findIndex((n) => n.group === group) : -1;
    const [x0, y0, { x, y }] = [event.clientX, event.clientY, this.at];
    const k0 = i < 0 ? 0 : this.view.parallelism(i);
    let dragged = false, k = k0;
    const move = (e) => {
      const [dx, dy] = [e.clientX - x0, e.clientY - y0];
      dragged ||= Math.hypot(dx, dy) > 6;
      if (!dragged) return;
      if (i < 0) { this.free = true; this.at = { ...this.at, x: x + dx, y: y + dy }; this.place(); }
      else if (this.view.store.head.moves) { k = this.view.bounded(i, k0 - Math.round(dy / 14)); this.view.hint(i, k); }
    };
    const end = (e) => {
      window.removeEventListener("pointermove", move);
      window.removeEventListener("pointerup", end);
      window.removeEventListener("pointercancel", end);
      if (i >= 0 && e.type === "pointerup") {
        if (!dragged) { this.view.select(i); group.focus({ preventScroll: true }); }
        else if (k !== k0) this.view.move(i, k);
      }
      if (i >= 0 && (e.type !== "pointerup" || k === k0)) this.view.hint(i, null);
    };
    event.preventDefault();
    window.addEventListener("pointermove", move);
    window.addEventListener("pointerup", end);
    window.addEventListener("pointercancel", end);
  }

  fit() {
    if (!this.layout) return;
    const [x0, y0, x1, y1] = this.layout.box, width = this.box.clientWidth || 700;
    const s = Math.min(1.15, width / (x1 - x0));
    const height = Math.max(150, Math.min(460, (y1 - y0) * s));
    this.box.style.height = `${height}px`;
    const fitted = Math.min(s, height / (y1 - y0));
    this.at = { s: fitted, x: (width - (x1 - x0) * fitted) / 2 - x0 * fitted, y: (height - (y1 - y0) * fitted) / 2 - y0 * fitted };
    this.place();
  }

  zoom(factor, cx = this.box.clientWidth / 2, cy = this.box.clientHeight / 2) {
    const { s, x, y } = this.at, next = Math.min(3, Math.max(0.12, s * factor)), real = next / s;
    this.free = true;
    this.at = { s: next, x: cx - (cx - x) * real, y: cy - (cy - y) * real };
    this.place();
  }

  place() {
    // the present zoom; letters keep their size on the screen, and give way where there is no room
    if (!this.world) return;
    const { s, x, y } = this.at, letter = Math.min(1.15, Math.max(1, s)) / s;
    set(this.world, "transform", `translate(${x},${y}) scale(${s})`);
    const letters = Math.max(4, Math.floor((COLUMN * s - 8) / (s < 0.62 ? 6.9 : 8.1)));
    this.nodes.forEach((node, i) => {
      put(node.name, shorten(this.scene.nodes[i].name, letters));
      const size = (s < 0.62 ? 11 : 12.5) * letter;
      set(node.name, "font-size", size); set(node.name, "y", RADIUS + 5 + size);
      set(node.more, "font-size", 11 * letter); set(node.more, "y", RADIUS + 8 + size + 11 * letter);
      set(node.queue, "font-size", 11 * letter); set(node.queue, "y", RADIUS + 9 + size + 23 * letter);
      set(node.next, "font-size", 12.5 * letter); set(node.next, "y", -RADIUS - 7);
    });
    for (const edge of this.edges) {
      set(edge.label, "font-size", 11 * letter);
      set(edge.label, "x", edge.x); set(edge.label, "y", edge.y - 5 * letter);
    }
    this.box.classList.toggle("ck-tight", s < 0.62);
    this.view.store.redraw(false);
  }

  show(row, busiest) {
    // the numbers of a window
    if (!this.scene || !row) { this.rates = null; this.blank(); return; }
    const jammed = pressured(this.scene, row), tight = this.at.s < 0.62;
    this.edges.forEach((edge, i) => {
      const rate = row.edges[i], pressed = jammed.has(i);
      set(edge.line, "class", pressed ? "ck-edge ck-pressed" : "ck-edge");
      set(edge.line, "marker-end", `url(#${this.view.name}-${pressed ? "pressed" : "arrow"})`);
      put(edge.label, rate === null ? "" : `${si(rate)}/s${pressed ? (this.at.s > 0.92 ? " ◂ held up" : " ◂") : ""}`);
      put(edge.title, `${edge.name}: ${rate === null ? "not measured" : `${si(rate)} records/s`}${pressed ? ", back-pressure" : ""}`);
    });
    this.nodes.forEach((node, i) => {
      const op = row.ops[i], { name } = this.scene.nodes[i];
      const busy = Math.min(1, op.busy ?? 0), blocked = Math.min(1 - busy, op.blocked ?? 0);
      set(node.busy, "stroke-dasharray", `${busy * 100} 100`);
      set(node.blocked, "stroke-dasharray", `${blocked * 100} 100`);
      set(node.blocked, "stroke-dashoffset", -busy * 100);
      const full = op.wait > 0 ? Math.log1p(op.wait) / Math.log1p(Math.max(busiest, 1)) : 0;
      set(node.bar, "height", 44 * Math.min(1, full)); set(node.bar, "y", 22 - 44 * Math.min(1, full));
      put(node.count, op.k === undefined ? "" : String(op.k));
      put(node.more, op.busy === undefined ? "" : tight ? percent(busy) : `${percent(busy)} busy`);
      put(node.queue, op.wait >= 1 && !tight ? `${si(op.wait)} wait` : "");
      const held = op.blocked > 0.05 ? `, blocked ${percent(op.blocked)}` : "";
      const said = `${name}: ${op.k ?? "?"} instances, busy ${percent(op.busy)}${held}, ${si(op.wait ?? 0)} records wait`;
      set(node.group, "aria-label", said);
      put(node.title, `${said}${this.view.store.head.moves ? " (drag up or down, or + and −, to change the instances)" : ""}`);
      node.group.classList.toggle("ck-chosen", this.view.chosen === i);
      node.group.classList.toggle("ck-jam", busy > 0.95 && op.wait >= 1);
    });
    this.rates = row.edges;
    this.top = Math.max(this.top, ...row.edges.map((rate) => rate ?? 0));
  }

  blank() {
    if (!this.scene) return;
    this.nodes.forEach((node, i) => {
      const { name } = this.scene.nodes[i];
      put(node.count, String(this.view.parallelism(i)));
      for (const part of [node.busy, node.blocked]) set(part, "stroke-dasharray", "0 100");
      set(node.bar, "height", 0);
      put(node.more, "");
      put(node.queue, "");
      set(node.group, "aria-label", name);
      put(node.title, name);
      node.group.classList.remove("ck-jam");
      node.group.classList.toggle("ck-chosen", this.view.chosen === i);
    });
    this.edges.forEach((edge) => {
      put(edge.label, "");
      set(edge.line, "class", "ck-edge");
      set(edge.line, "marker-end", `url(#${this.view.name}-arrow)`);
    });
    this.dots = [];
    this.flow(0, false);
  }

  flow(passed, born = true) {
    // move the records by `passed` seconds; on each edge they leave at its share of the greatest rate
    const { canvas } = this, ratio = Math.min(2, window.devicePixelRatio || 1);
    const [width, height] = [this.box.clientWidth, this.box.clientHeight];
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    if (!this.scene) return;
    this.frames += 1;
    if (born && this.rates) this.rates.forEach((rate, e) => {
      this.carry[e] += (DENSEST * passed * (rate ?? 0)) / this.top;
      for (; this.carry[e] >= 1; this.carry[e] -= 1) this.dots.push([e, SPEED * passed * (this.carry[e] % 1)]);
    });
    const { s, x, y } = this.at, size = Math.max(1.6, 2.4 * Math.min(1.2, s + 0.3)), kept = [];
    pen.fillStyle = this.view.colours.dots;
    pen.beginPath();
    for (const dot of this.dots) {
      const way = this.ways[dot[0]];
      dot[1] += SPEED * passed;
      if (dot[1] >= way[way.length - 1][2]) continue;
      kept.push(dot);
      const [px, py] = along(way, dot[1]), [sx, sy] = [px * s + x, py * s + y];
      pen.moveTo(sx + size, sy);
      pen.arc(sx, sy, size, 0, 6.2832);
    }
    pen.fill();
    this.dots = kept;
  }

  save() {
    const copy = this.svg.cloneNode(true), box = this.box.getBoundingClientRect();
    const own = [...this.svg.querySelectorAll("*")], theirs = [...copy.querySelectorAll("*")];
    own.forEach((element, i) => {
      const style = getComputedStyle(element);
      theirs[i].setAttribute("style", ["fill", "stroke", "stroke-width", "stroke-linecap", "opacity", "font-family", "font-weight",
        "paint-order", "display"].map((name) => `${name}:${style.getPropertyValue(name)}`).join(";"));
    });
    set(copy, "viewBox", `0 0 ${box.width} ${box.height}`);
    set(copy, "width", box.width); set(copy, "height", box.height);
    set(copy, "style", `background:${this.view.colours.back}`);
    this.view.download(new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" }), "graph.svg");
  }
}

// ------------------------------------------------------------------------------------------------------------- charts

class Charts {
  constructor(view) {
    this.view = view;
    this.canvas = make("canvas", { class: "ck-canvas", tabindex: 0, role: "slider", "aria-label": "time in the charts" });
    this.tip = make("div", { class: "ck-tip", hidden: "" });
    this.box = make("div", { class: "ck-charts" }, this.canvas, this.tip);
    this.canvas.addEventListener("pointermove", (event) => this.hover(event));
    this.canvas.addEventListener("pointerleave", () => { this.over = null; this.tip.hidden = true; view.store.redraw(false); });
    this.canvas.addEventListener("pointerdown", (event) => this.brush(event));
    this.canvas.addEventListener("dblclick", () => view.clear());
    this.canvas.addEventListener("keydown", (event) => view.timeKey(event));
  }

  get panels() {
    const { view } = this, { scene, head } = view.store, names = scene?.nodes.map((n) => n.name) ?? [];
    const many = names.length > KNOWN;
    const each = (what, shift) => names.map((name, i) => ({ name, colour: many ? "faint" : i, dash: many ? 0 : i, step: shift,
      shift: shift && !many ? (i - (names.length - 1) / 2) * 1.6 : 0, bold: view.chosen === i,
      value: (row) => row.ops[i]?.[what] ?? null }));
    const lines = Object.entries(head.lines ?? {}).filter(([, [row]]) => row === "latency");
    const limits = lines.map(([name, [, value]]) => ({ name, value })).filter((line) => line.value !== head.target);
    const panels = [
      { title: "records/s", lines: [
        { name: "input", colour: 0, dash: 1, step: true, value: (row) => row.in },
        { name: "throughput", colour: 1, dash: 0, value: (row) => row.out }] },
      { title: "latency", unit: seconds, limits: head.target ? [{ name: "target", value: head.target }, ...limits] : limits, lines: [
        { name: "p99", colour: 3, dash: 2, value: (row) => row.lat?.[3] ?? null },
        { name: "mean", colour: 2, dash: 0, value: (row) => row.lat?.[0] ?? null }] },
      { title: "instances", marks: true, whole: true,
        lines: many ? [{ name: "all", colour: 0, dash: 0, step: true, value: (row) => row.n }, ...each("k", true)] : each("k", true) },
      { title: "records waiting", lines: each("wait", false) },
    ];
    if (Object.values(head.lines ?? {}).some(([row]) => row === "busy")) {
      const busy = Object.entries(head.lines).filter(([, [row]]) => row === "busy").map(([name, [, value]]) => ({ name, value }));
      panels.push({ title: "busy", unit: percent, limits: busy, lines: each("busy", false) });
    }
    return panels;
  }

  range() {
    // the times that are shown
    const { view } = this, { rows } = view.store.shown, { head } = view.store;
    if (view.zoomed) return view.zoomed;
    const first = rows.length ? rows[0].t - rows[0].dt : 0;
    return [first, Math.max(first + (head.windows ?? 1) * (rows[0]?.dt ?? 1), rows[rows.length - 1]?.t ?? 1)];
  }

  draw() {
    const { view, canvas } = this, { store } = view, { rows, notes } = store.shown, colours = view.colours;
    const width = Math.max(260, this.box.clientWidth), panels = this.panels, narrow = width < 560;
    const right = narrow ? 10 : 104, height = TOP + panels.length * (PANEL + GAP) - GAP + FOOT;
    const ratio = Math.min(2, window.devicePixelRatio || 1);
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
    }
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.fillStyle = colours.back;
    pen.fillRect(0, 0, width, height);
    pen.font = `11px ${colours.font}`;
    const [t0, t1] = this.range(), x = scale(t0, t1, LEFT, width - right);
    this.frame = { x, t: scale(LEFT, width - right, t0, t1), right: width - right, bottom: height - FOOT };
    const first = Math.max(0, rows.findIndex((row) => row.t >= t0) - 1), last = rows.findLastIndex((row) => row.t - row.dt <= t1);
    const seen = rows.slice(first, last + 1);
    const kept = thin(seen.length, Math.max(200, width)).map((i) => seen[i]);
    const other = view.overlay ? store.run(view.overlay).rows.filter((row) => row.t >= t0 && row.t <= t1) : [];
    const others = thin(other.length, width).map((i) => other[i]);
    if (view.span && rows.length) {
      const [a, b] = view.span.map((i) => rows[Math.min(i, rows.length - 1)]);
      pen.fillStyle = colours.span;
      pen.fillRect(x(a.t - a.dt), TOP - 6, x(b.t) - x(a.t - a.dt), height - FOOT - TOP + 6);
    }
    panels.forEach((panel, p) => this.panel(pen, panel, kept, others, TOP + p * (PANEL + GAP), x, width, right, [t0, t1], narrow));
    this.times(pen, [t0, t1], x, height, width, right);
    this.marks(pen, seen, notes.filter((n) => n.t >= t0 && n.t <= t1), x, height, panels);
    const cursor = view.at === null ? null : rows[view.at];
    for (const [row, colour, broad] of [[cursor, colours.text, 1.5], [this.over === null || this.over === undefined ? null : rows[this.over], colours.muted, 1]]) {
      if (!row || row.t < t0 || row.t > t1) continue;
      pen.strokeStyle = colour; pen.lineWidth = broad; pen.setLineDash([]);
      pen.beginPath(); pen.moveTo(x(row.t), TOP - 8); pen.lineTo(x(row.t), height - FOOT); pen.stroke();
    }
    const shown = view.row;
    const said = shown ? `t = ${si(shown.t, 6)} s, throughput ${si(shown.out)} of ${si(shown.in)} records/s, 99th percentile of latency ${seconds(shown.lat?.[3])}` : "no run yet";
    set(canvas, "aria-valuetext", said);
    set(canvas, "aria-valuemin", 0);
    set(canvas, "aria-valuemax", Math.max(0, rows.length - 1));
    set(canvas, "aria-valuenow", view.at ?? Math.max(0, rows.length - 1));
  }

  panel(pen, panel, rows, others, top, x, width, right, [t0, t1], narrow) {
    const { colours } = this.view, bottom = top + PANEL;
    let most = 0;
    const values = (set) => { for (const row of set) for (const line of panel.lines) { const v = line.value(row); if (v > most) most = v; } };
    values(rows); values(others);
    for (const limit of panel.limits ?? []) if (limit.value <= most * 3 || !most) most = Math.max(most, limit.value);
    most = panel.whole ? Math.max(2, most * 1.12) : most > 0 ? most * 1.08 : 1;
    const y = scale(0, most, bottom, top), unit = panel.unit ?? ((value) => si(value));
    pen.setLineDash([]);
    pen.lineWidth = 1;
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    let marks = ticks(most, panel.whole ? 5 : 3);
    if (panel.whole) marks = marks.filter(Number.isInteger);
    for (const value of marks) {
      pen.strokeStyle = colours.grid;
      pen.beginPath(); pen.moveTo(LEFT, Math.round(y(value)) + 0.5); pen.lineTo(width - right, Math.round(y(value)) + 0.5); pen.stroke();
      pen.fillStyle = colours.muted;
      pen.fillText(unit(value), LEFT - 6, y(value));
    }
    pen.textAlign = "left";
    pen.textBaseline = "alphabetic";
    pen.fillStyle = colours.text;
    pen.font = `600 11px ${colours.font}`;
    pen.fillText(panel.title, 4, top - 7);
    pen.font = `11px ${colours.font}`;
    let legend = 10 + pen.measureText(panel.title).width + 14;
    pen.save();
    pen.beginPath(); pen.rect(LEFT, top - 5, width - right - LEFT, PANEL + 10); pen.clip();
    for (const limit of panel.limits ?? []) {
      if (limit.value > most) continue;
      pen.strokeStyle = colours.text; pen.setLineDash([6, 4]); pen.lineWidth = 1.2;
      pen.beginPath(); pen.moveTo(LEFT, y(limit.value)); pen.lineTo(width - right, y(limit.value)); pen.stroke();
      pen.setLineDash([]); pen.fillStyle = colours.text;
      pen.fillText(`${limit.name} ${unit(limit.value)}`, LEFT + 4, y(limit.value) - 4);
    }
    for (const line of panel.lines) {
      if (others.length) this.line(pen, line, others, x, y, true);
      this.line(pen, line, rows, x, y, false);
    }
    pen.restore();
    const ends = [];
    panel.lines.forEach((line) => {
      if (line.colour === "faint" && !line.bold) return;
      const row = rows.findLast?.((r) => line.value(r) !== null);
      if (row) ends.push({ line, y: y(line.value(row)) + (line.shift ?? 0) });
    });
    if (narrow) {
      for (const { line } of ends) {
        const text = shorten(line.name, 14);
        if (legend + pen.measureText(text).width + 26 > width) break;
        this.sample(pen, line, legend, top - 11);
        pen.fillStyle = colours.text; pen.fillText(text, legend + 20, top - 7);
        legend += pen.measureText(text).width + 32;
      }
      return;
    }
    ends.sort((a, b) => a.y - b.y);
    const space = Math.min(13, PANEL / Math.max(1, ends.length));
    for (let i = 1; i < ends.length; i++) ends[i].y = Math.max(ends[i].y, ends[i - 1].y + space);
    const late = ends.length ? ends[ends.length - 1].y - (bottom + 4) : 0;
    if (late > 0) for (let i = ends.length - 1, floor = bottom + 4; i >= 0; i--, floor -= space) ends[i].y = Math.min(ends[i].y, floor);
    for (const end of ends) {
      this.sample(pen, end.line, width - right + 6, end.y);
      pen.fillStyle = colours.text;
      pen.font = `${end.line.bold ? "700 " : ""}11px ${colours.font}`;
      pen.fillText(shorten(end.line.name, 11), width - right + 27, end.y + 4);
    }
    pen.font = `11px ${colours.font}`;
  }

  look(pen, line, faded) {
    const { colours } = this.view;
    pen.strokeStyle = line.colour === "faint" ? (line.bold ? colours.text : colours.faint) : colours.lines[line.colour % colours.lines.length];
    pen.lineWidth = line.bold ? 3 : line.colour === "faint" ? 0.8 : 1.8;
    pen.globalAlpha = faded ? 0.5 : 1;
    pen.setLineDash(faded ? [1, 3] : [[], [7, 4], [2, 3], [8, 3, 2, 3], [12, 4], [12, 3, 2, 3]][line.dash % 6]);
  }

  sample(pen, line, x, y) {
    this.look(pen, line, false);
    pen.beginPath(); pen.moveTo(x, y); pen.lineTo(x + 17, y); pen.stroke();
    pen.setLineDash([]);
  }

  line(pen, line, rows, x, y, faded) {
    this.look(pen, line, faded);
    pen.beginPath();
    let on = false;
    for (const row of rows) {
      const value = line.value(row);
      if (value === null) { on = false; continue; }
      const h = y(value) + (line.shift ?? 0), end = x(row.t);
      if (line.step) { const begin = x(row.t - row.dt); if (on) pen.lineTo(begin, h); else pen.moveTo(begin, h); pen.lineTo(end, h); }
      else if (on) pen.lineTo(end, h); else { pen.moveTo(end, h); if (rows.length === 1) pen.lineTo(end + 2, h); }
      on = true;
    }
    pen.stroke();
    pen.globalAlpha = 1;
    pen.setLineDash([]);
  }

  times(pen, [t0, t1], x, height, width, right) {
    const { colours } = this.view;
    pen.fillStyle = colours.muted;
    pen.textAlign = "center";
    const step = ticks(t1 - t0, Math.max(2, Math.floor((width - LEFT - right) / 90)))[1] ?? t1 - t0;
    for (let t = Math.ceil(t0 / step - 1e-9) * step; t <= t1 + step * 1e-6; t += step) pen.fillText(String(Number(t.toPrecision(8))), x(t), height - FOOT + 15);
    pen.fillText("seconds since the start", (LEFT + width - right) / 2, height - 4);
    pen.textAlign = "left";
  }

  marks(pen, rows, notes, x, height, panels) {
    // a diamond per decision and a circle per change by hand, at the foot of the instances, with a line through all
    const { colours } = this.view, p = panels.findIndex((panel) => panel.marks), y = TOP + p * (PANEL + GAP) + PANEL + 10;
    const acted = rows.filter((row) => row.act);
    if (acted.length + notes.length <= 150) {
      pen.strokeStyle = colours.muted; pen.globalAlpha = 0.45; pen.lineWidth = 1; pen.setLineDash([2, 4]);
      pen.beginPath();
      for (const { t } of [...acted, ...notes]) { pen.moveTo(x(t), TOP - 4); pen.lineTo(x(t), height - FOOT); }
      pen.stroke();
      pen.globalAlpha = 1; pen.setLineDash([]);
    }
    pen.fillStyle = colours.text;
    for (const { t } of acted) { pen.beginPath(); pen.moveTo(x(t), y - 6); pen.lineTo(x(t) + 5, y); pen.lineTo(x(t), y + 6); pen.lineTo(x(t) - 5, y); pen.fill(); }
    pen.strokeStyle = colours.text; pen.lineWidth = 2;
    for (const { t } of notes) { pen.beginPath(); pen.arc(x(t), y, 4.5, 0, 6.2832); pen.fillStyle = colours.back; pen.fill(); pen.stroke(); }
  }

  index(event) {
    const { rows } = this.view.store.shown;
    if (!rows.length || !this.frame) return null;
    return nearest(rows, this.frame.t(event.clientX - this.canvas.getBoundingClientRect().left));
  }

  hover(event) {
    const { view } = this, { rows, notes } = view.store.shown, i = this.index(event);
    if (i === null) return;
    this.over = i;
    const row = rows[i], box = this.canvas.getBoundingClientRect();
    const lines = [`t = ${si(row.t, 6)} s`];
    for (const panel of this.panels) {
      const unit = panel.unit ?? ((value) => si(value));
      const said = panel.lines.filter((line) => line.colour !== "faint" || line.bold).map((line) => [line.name, line.value(row)]);
      if (said.length) lines.push(`${panel.title}: ${said.map(([name, value]) => `${name} ${unit(value)}`).join(", ")}`);
    }
    if (row.act) lines.push(`◆ ${row.act.what}`, ...row.say.slice(0, 4));
    for (const note of notes) if (Math.abs(note.t - row.t) < row.dt / 2) lines.push(`○ ${note.what}`);
    this.tip.replaceChildren(...lines.map((text) => make("div", { text })));
    this.tip.hidden = false;
    const left = event.clientX - box.left, wide = this.tip.offsetWidth;
    this.tip.style.left = `${Math.max(0, left + 16 + wide > box.width ? left - wide - 14 : left + 16)}px`;
    this.tip.style.top = `${Math.max(0, Math.min(event.clientY - box.top + 10, box.height - this.tip.offsetHeight))}px`;
    view.store.redraw(false);
  }

  brush(event) {
    const { view } = this, start = this.index(event);
    if (start === null || event.button !== 0) return;
    this.canvas.setPointerCapture(event.pointerId);
    const x0 = event.clientX;
    const move = (e) => {
      const i = this.index(e);
      if (Math.abs(e.clientX - x0) > 5 && i !== null) view.take([Math.min(start, i), Math.max(start, i)]);
    };
    const end = (e) => {
      for (const [name, act] of [["pointermove", move], ["pointerup", end], ["pointercancel", end]]) this.canvas.removeEventListener(name, act);
      if (e.type === "pointerup" && Math.abs(e.clientX - x0) <= 5) view.go(start);
    };
    for (const [name, act] of [["pointermove", move], ["pointerup", end], ["pointercancel", end]]) this.canvas.addEventListener(name, act);
  }
}

// --------------------------------------------------------------------------------------------------------------- view

let made = 0;

export class View {
  constructor(store, element) {
    this.store = store;
    this.name = `ck${made++}`;
    Object.assign(this, { at: null, span: null, zoomed: null, chosen: null, overlay: null, pressed: null, stale: true });
    this.hints = new Map();
    this.root = element;
    element.classList.add("ck");
    element.dataset.lmSuppressShortcuts = "true";  // else JupyterLab takes + and - for its own
    const held = (e, on) => {  // but Ctrl+S is still its own
      if (!["Control", "Meta"].includes(e.key)) return;
      if (on) delete element.dataset.lmSuppressShortcuts;
      else element.dataset.lmSuppressShortcuts = "true";
    };
    element.addEventListener("keydown", (e) => held(e, true));
    element.addEventListener("keyup", (e) => held(e, false));
    element.addEventListener("focusin", () => { element.dataset.lmSuppressShortcuts = "true"; });
    this.graph = new Graph(this);
    this.charts = new Charts(this);
    this.build();
    this.follow = new ResizeObserver(() => { if (!this.graph.free) this.graph.fit(); store.redraw(true); });
    this.follow.observe(element);
    this.darker = () => {  // the theme's style sheet comes a while after its name
      for (const wait of [0, 200, 800, 2500]) setTimeout(() => { this.colours = null; store.redraw(true); }, wait);
    };
    this.theme = new MutationObserver(this.darker);
    for (const each of [document.body, document.documentElement]) this.theme.observe(each, { attributes: true, attributeFilter: ["class", "data-jp-theme-light", "data-jp-theme-name"] });
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.calm = matchMedia("(prefers-reduced-motion: reduce)");
    this.dark.addEventListener("change", this.darker);
    this.sight = new IntersectionObserver((seen) => { this.visible = seen[seen.length - 1].isIntersecting; this.run(); });
    this.sight.observe(this.graph.box);
    this.colours = null;  // until it is on the page
    store.views.add(this);
    element.cockpit = this;
    store.changed();
  }

  end() {
    this.store.views.delete(this);
    for (const each of [this.follow, this.theme, this.sight]) each.disconnect();
    this.dark.removeEventListener("change", this.darker);
    cancelAnimationFrame(this.frame);
    clearInterval(this.ticking); clearInterval(this.playing); clearTimeout(this.nudging);
  }

  read() {
    // colours of the theme, which a canvas does not inherit
    const style = getComputedStyle(this.root), colour = (name) => style.getPropertyValue(`--ck-${name}`).trim() || "#888";
    return {
      text: colour("text"), muted: colour("muted"), grid: colour("grid"), back: colour("back"), span: colour("span"), faint: colour("faint"),
      dots: colour("dots"), lines: Array.from({ length: 8 }, (_, i) => colour(`line-${i}`)), font: style.fontFamily || "sans-serif",
    };
  }

  build() {
    const button = (text, said, act, more = {}) => make("button", { type: "button", class: "ck-button", title: said, text, onclick: act, ...more });
    this.bar = make("div", { class: "ck-bar", role: "toolbar", "aria-label": "run" });
    this.progress = make("progress", { "aria-label": "windows done", value: 0, max: 1 });
    this.left = make("span", { class: "ck-left" });
    this.status = make("div", { class: "ck-status", role: "status" });
    this.clock = make("span", { class: "ck-clock", "aria-hidden": "true" });
    this.said = make("div", { class: "ck-unseen", "aria-live": "polite" });
    this.outlook = make("p", { class: "ck-outlook", hidden: "" });
    const tile = (name) => {
      const parts = { value: make("b"), more: make("span") };
      return { ...parts, box: make("div", { class: "ck-tile", role: "group", "aria-label": name }, make("i", { text: name }), parts.value, parts.more) };
    };
    this.tiles = Object.fromEntries(["throughput", "latency, p99", "lag", "instances", "cost"].map((name) => [name, tile(name)]));
    this.panel = make("div", { class: "ck-panel", hidden: "", role: "region", "aria-label": "operator" });
    this.places = make("div", { class: "ck-places", hidden: "", role: "region", "aria-label": "machines" });
    this.scrub = make("input", { type: "range", class: "ck-scrub", min: 0, max: 0, value: 0, "aria-label": "window of the run",
      oninput: () => this.go(Number(this.scrub.value)), onkeydown: (event) => event.stopPropagation() });
    this.chip = make("span", { class: "ck-chip" });
    this.play = button("▶", "replay from here", () => this.replay(), { "aria-label": "replay" });
    this.live = button("Live", "show the latest window again", () => this.clear());
    this.zoom = button("Zoom", "show only the chosen span", () => this.toggleZoom());
    this.branch = button("Branch here", "repeat the run up to this window, and continue from there with what the controls say now",
      () => this.fork());
    this.with = make("select", { class: "ck-with", "aria-label": "compare with", onchange: () => this.compare(this.with.value) });
    this.png = button("PNG", "save the charts as a picture", () => this.charts.canvas.toBlob((blob) => this.download(blob, "charts.png")));
    this.time = make("div", { class: "ck-time" }, this.play, this.scrub, this.chip, this.live, this.zoom, this.branch, this.with, this.png);
    this.now = make("div", { class: "ck-now" });
    this.list = make("ol", { class: "ck-list", "aria-label": "decisions and changes by hand", tabindex: 0 });
    this.summary = make("p", { class: "ck-summary" });
    this.root.replaceChildren(
      this.bar, make("div", { class: "ck-line" }, this.status, this.clock), this.said, this.outlook,
      make("div", { class: "ck-tiles" }, ...Object.values(this.tiles).map((each) => each.box)),
      this.graph.box, this.panel, this.places, this.time, this.charts.box, this.summary,
      make("h4", { text: "Decisions" }), this.now, this.list);
  }

  // What a person does

  press(name) {
    const { run, state, paused } = this.store.head;
    this.pressed = { name, at: performance.now(), run, state, paused };
    if (name === "Start" || name === "Reset") Object.assign(this, { at: null, span: null, zoomed: null });
    this.store.say({ type: "press", button: name });
    this.root.dataset.pressed = name;
    this.showStatus();
    this.tick();
  }

  parallelism(i) {
    const { scene, head } = this.store, name = scene.nodes[i].name, { rows } = this.store.shown;
    return this.hints.get(i)?.k ?? (head.going ? rows[rows.length - 1]?.ops[i].k : undefined) ?? head.start?.[name] ?? rows[rows.length - 1]?.ops[i].k ?? 1;
  }

  bounded(i, k) {
    const { min, max } = this.store.scene.nodes[i];
    return Math.min(max, Math.max(min, k));
  }

  hint(i, k) {
    // what a drag would do, or what was asked for and has not come yet
    if (k === null) this.hints.delete(i); else this.hints.set(i, { k, at: performance.now() });
    this.store.redraw(false);
  }

  nudge(i, by) {
    // keys change the number at once; it is sent when they rest
    if (!this.store.head.moves) return;
    const k = this.bounded(i, this.parallelism(i) + by);
    this.hint(i, k);
    (this.nudged ??= new Map()).set(i, k);
    clearTimeout(this.nudging);
    this.nudging = setTimeout(() => { for (const [j, value] of this.nudged) this.move(j, value); this.nudged.clear(); }, 300);
  }

  move(i, k) {
    this.hint(i, k);
    this.hints.get(i).sent = true;
    this.store.say({ type: "move", operator: this.store.scene.nodes[i].name, parallelism: k });
    put(this.said, `${this.store.scene.nodes[i].name}: ${k} instances asked for`);
  }

  select(i) {
    this.chosen = this.chosen === i ? null : i;
    this.store.redraw(true);
  }

  go(i) {
    const { rows } = this.store.shown;
    this.span = null;
    this.at = i >= rows.length - 1 && this.store.head.going ? null : Math.max(0, Math.min(i, rows.length - 1));
    this.store.redraw(false);
  }

  take(span) { this.span = span; this.at = null; this.store.redraw(false); }

  clear() { this.halt(); Object.assign(this, { at: null, span: null, zoomed: null }); this.store.redraw(false); }

  toggleZoom() {
    const { rows } = this.store.shown;
    if (this.zoomed) this.zoomed = null;
    else if (this.span) { const [a, b] = this.span; this.zoomed = [rows[a].t - rows[a].dt, rows[b].t]; }
    this.store.redraw(false);
  }

  timeKey(event) {
    const { rows } = this.store.shown, here = this.at ?? rows.length - 1;
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[event.key];
    if (step && event.shiftKey && rows.length) {
      const [a, b] = this.span ?? [here, here], end = Math.max(0, Math.min(rows.length - 1, b + step));
      this.take([Math.min(a, end), Math.max(a, end)]);
    } else if (step) this.go(Math.max(0, here + step));
    else if (event.key === "Home") this.go(0);
    else if (event.key === "End" || event.key === "Escape") this.clear();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  replay() {
    if (this.playing) return this.halt();
    const { rows } = this.store.shown;
    if (!rows.length) return undefined;
    this.at = this.at === null || this.at >= rows.length - 1 ? 0 : this.at;
    this.span = null;
    this.playing = setInterval(() => {
      if (this.at === null || this.at >= this.store.shown.rows.length - 1) this.halt();
      else { this.at += 1; this.store.redraw(false); }
    }, 150);
    this.run();
    return this.store.redraw(false);
  }

  halt() { clearInterval(this.playing); this.playing = null; this.store.redraw(false); }

  fork() {
    const { rows } = this.store.shown, i = this.span ? this.span[1] : this.at ?? rows.length - 1;
    if (i < 0) return;
    const { run } = this.store.head;
    this.halt();
    this.pressed = { name: "Branch", at: performance.now(), run, state: this.store.head.state };
    this.store.say({ type: "branch", run, windows: i + 1 });
    Object.assign(this, { at: null, span: null, zoomed: null });
    this.overlay = run;
    this.showStatus();
    this.tick();
  }

  compare(id) {
    this.overlay = id || null;
    if (this.overlay) this.store.pull(this.overlay);
    this.store.redraw(true);
  }

  toggleMachines() {
    this.places.hidden = !this.places.hidden;
    set(this.graph.machines, "aria-pressed", String(!this.places.hidden));
    this.store.redraw(false);
  }

  download(blob, name) {
    const link = make("a", { href: URL.createObjectURL(blob), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  // What it shows

  get row() {
    const { rows } = this.store.shown;
    if (!rows.length) return null;
    if (this.span) return average(rows.slice(this.span[0], this.span[1] + 1));
    return rows[this.at === null ? rows.length - 1 : Math.min(this.at, rows.length - 1)];
  }

  tick() {
    // seconds since a press that the kernel has not carried out yet
    clearInterval(this.ticking);
    this.ticking = setInterval(() => this.showStatus(), 250);
  }

  showStatus() {
    const { store, pressed } = this, { head } = store, waits = pressed && (performance.now() - pressed.at) / 1000;
    const answered = pressed && (head.run !== pressed.run || head.state !== pressed.state || (pressed.name === "Reset" && !head.run)
      || (["Pause", "Resume"].includes(pressed.name) && head.paused !== pressed.paused));
    const starting = head.state === "starting" || (pressed && !answered && ["Start", "Branch"].includes(pressed.name));
    let text = store.port.get("status") ?? "";
    if (pressed && !answered && waits < 60) {
      const doing = { Start: "Starting…", Branch: "Branching…", Stop: "Stopping…", Pause: "Pausing…", Resume: "Resuming…", Step: "One window…", Reset: "Resetting…", "Export report": "Writing the report…", Undo: "Undoing…" }[pressed.name];
      if (["Start", "Branch", "Stop", "Pause", "Reset"].includes(pressed.name) || waits < 1) text = doing;
      if (starting && waits > 3) text += " The kernel is busy with a cell, and answers when it can.";
    } else if (starting && performance.now() - (this.began ?? Infinity) > 2000 && head.slow) text += ` ${head.slow}`;
    put(this.status, text);
    this.root.dataset.state = starting ? "starting" : head.state ?? "idle";
    const since = starting ? (performance.now() - (this.began ??= performance.now())) / 1000 : 0;
    if (!starting) this.began = null;
    put(this.clock, starting && since >= 1 ? `${Math.floor(since)} s` : "");
    if (!starting && (answered || !pressed || waits > 5)) { clearInterval(this.ticking); this.ticking = null; if (answered) this.pressed = null; }
    else if (starting && !this.ticking) this.tick();
  }

  showButtons() {
    const buttons = Object.entries(this.store.port.get("buttons") ?? {});
    if (this.bar.children.length !== buttons.length + 2) {
      this.bar.replaceChildren(...buttons.map(([name, spec]) => {
        const made = make("button", { type: "button", class: "jupyter-button ck-press", title: spec.said, onclick: () => this.press(made.dataset.shown) });
        made.dataset.name = name;
        return made;
      }), this.progress, this.left);
    }
    buttons.forEach(([name, spec], i) => {
      const made = this.bar.children[i];
      made.dataset.shown = spec.text === "Resume" ? "Resume" : name;
      put(made, spec.text);
      made.disabled = spec.disabled;
    });
    const { head } = this.store, { rows } = this.store.shown, done = rows.length;
    this.progress.max = head.windows || 1;
    if (!done && this.root.dataset.state === "starting") this.progress.removeAttribute("value");  // it moves, and says no share
    else this.progress.value = Math.min(done, head.windows || 1);
    const left = head.going && head.left_s ? `, ${head.left_s < 120 ? `${Math.ceil(head.left_s)} s` : `${Math.ceil(head.left_s / 60)} min`} left` : "";
    put(this.left, done ? `${done} of ${head.windows}${left}` : "");
  }

  draw() {
    const { store } = this, { scene, head } = store, { rows, notes } = store.shown;
    if (!this.root.isConnected || this.root.clientWidth === 0) return;  // in a tab that is not shown
    this.colours ??= this.read();
    if (this.stale) {
      const key = JSON.stringify(scene);
      if (key !== this.sceneKey) { this.sceneKey = key; this.chosen = null; this.graph.lay(scene); this.listed = null; }
      if (head.run !== this.runShown) {
        Object.assign(this, { runShown: head.run, at: null, span: null, zoomed: null, listed: null });
        this.graph.top = 1;
        this.hints.clear();
        if (head.overlay) this.overlay = head.overlay;
        if (this.overlay === head.run) this.overlay = null;
      }
      this.stale = false;
      this.showChoices();
      put(this.summary, store.port.get("summary") ?? "");
    }
    this.showStatus();
    this.showButtons();
    const row = this.row;
    const busiest = Math.max(1, ...rows.slice(-400).map((r) => Math.max(0, ...r.ops.map((op) => op.wait ?? 0))));
    this.graph.show(row, busiest);
    this.showHints(rows[rows.length - 1]);
    this.showTiles(row);
    this.charts.draw();
    this.showTime(rows);
    this.showPanel(row);
    this.showPlaces(row);
    this.showList(rows, notes);
    this.root.dataset.windows = rows.length;
    this.run();
  }

  showHints(last) {
    for (const [i, hint] of this.hints) {
      if (hint.sent && last && last.ops[i].k === hint.k) this.hints.delete(i);
      else if (hint.sent && performance.now() - hint.at > 30000) this.hints.delete(i);
      else if (hint.sent && !this.store.head.going && this.store.head.start?.[this.store.scene.nodes[i].name] === hint.k) this.hints.delete(i);
    }
    this.graph.nodes?.forEach((node, i) => put(node.next, this.hints.has(i) ? `→ ${this.hints.get(i).k}` : ""));
  }

  showTiles(row) {
    const { rows } = this.store.shown, { head } = this.store, until = this.span ? this.span[1] : this.at ?? rows.length - 1;
    const fill = (name, value, more, bad = false) => {
      const tile = this.tiles[name];
      put(tile.value, value); put(tile.more, more);
      tile.box.classList.toggle("ck-bad", bad);
    };
    if (!row) { for (const name of Object.keys(this.tiles)) fill(name, "–", ""); return; }
    fill("throughput", `${si(row.out)}/s`, `of ${si(row.in)}/s input`, row.out < row.in * 0.95);
    const average = row.lat?.[0] ?? null, late = Boolean(head.target) && average > head.target;  // targets are of the mean, as in the sentences
    fill("latency, p99", row.lat ? seconds(row.lat[3]) : "–", row.lat ? (late ? `⚠ mean > ${seconds(head.target)}` : `mean ${seconds(average)}`) : "", late);
    set(this.tiles["latency, p99"].box, "title", `mean ${seconds(average)}${head.target ? `, target of the mean ${seconds(head.target)}` : ""}`);
    fill("lag", si(row.lag), "records in the log");
    fill("instances", si(row.n), row.workers ? `on ${row.workers} machines` : row.down ? `${si(row.down)} s down` : "");
    fill("cost", si(cost(rows, until, this.span ? this.span[0] : 0)), "instance-seconds");
  }

  showChoices() {
    const { head } = this.store, others = (head.runs ?? []).filter((run) => run.id !== head.run);
    const key = JSON.stringify([others, this.overlay]);
    if (key !== this.choices) {
      this.choices = key;
      this.with.replaceChildren(make("option", { value: "", text: "compare with…" }),
        ...others.map((run) => make("option", { value: run.id, text: run.label })));
      this.with.value = this.overlay ?? "";
      if (this.overlay && !this.store.run(this.overlay).rows.length) this.store.pull(this.overlay);
    }
    this.with.hidden = !others.length;
    put(this.outlook, head.outlook ?? "");
    this.outlook.hidden = !head.outlook;
  }

  showTime(rows) {
    const { head } = this.store;
    this.time.hidden = !rows.length;
    if (!rows.length) return;
    this.scrub.max = rows.length - 1;
    this.scrub.value = this.at ?? (this.span ? this.span[1] : rows.length - 1);
    const row = rows[this.at ?? rows.length - 1];
    const shown = this.span ? `t = ${si(rows[this.span[0]].t - rows[this.span[0]].dt, 6)} to ${si(rows[this.span[1]].t, 6)} s` : `t = ${si(row.t, 6)} s`;
    put(this.chip, `${shown}${this.at === null && !this.span && head.going ? ", live" : ""}`);
    set(this.scrub, "aria-valuetext", shown);
    this.live.disabled = this.at === null && !this.span && !this.zoomed;
    put(this.live, head.going ? "Live" : "Latest");
    this.zoom.disabled = !this.span && !this.zoomed;
    put(this.zoom, this.zoomed ? "Whole run" : "Zoom");
    this.branch.disabled = !head.branches;
    put(this.play, this.playing ? "❚❚" : "▶");
  }

  showPanel(row) {
    const { scene } = this.store, i = this.chosen;
    this.panel.hidden = i === null || !scene;
    if (this.panel.hidden) { this.shownNode = null; return; }
    const { name } = scene.nodes[i], op = row?.ops[i] ?? {};
    if (this.shownNode !== i) {
      this.shownNode = i;
      const step = (text, by, said) => make("button", { type: "button", class: "ck-button", "aria-label": said, title: said, text, onclick: () => this.nudge(i, by) });
      this.steps = make("div", { class: "ck-steps" }, step("−", -1, `one instance of ${name} less`), make("b"), step("+", 1, `one instance of ${name} more`));
      this.facts = make("dl");
      this.each = make("div", { class: "ck-each" });
      this.about = make("div", { class: "ck-about" });
      const close = make("button", { type: "button", class: "ck-button ck-close", "aria-label": "close", title: "close", text: "✕", onclick: () => this.select(null) });
      this.panel.replaceChildren(make("div", {}, make("h5", { text: name }), this.steps, this.facts), make("div", {}, this.each, this.about), close);
    }
    this.steps.hidden = !this.store.head.moves;
    const k = this.parallelism(i);
    put(this.steps.children[1], `${k} instance${k === 1 ? "" : "s"}${this.store.head.going ? "" : " at the next start"}`);
    const facts = [["arrives", op.in, "/s"], ["would arrive", op.asked, "/s"], ["processed", op.done, "/s"], ["one instance can do", op.can, "/s"],
      ["busy", op.busy, "%"], ["blocked", op.blocked, "%"], ["records waiting", op.wait, ""], ["cores", op.cpu, ""], ["dropped", op.dropped, "/s"],
      ["late", op.late, "/s"], ["keys of state", op.keys, ""]].filter(([, value]) => value !== undefined && value !== null);
    const texts = facts.map(([what, value, unit]) => [what, unit === "%" ? percent(value) : `${si(value)}${unit}`]);
    if (JSON.stringify(texts) !== this.factsShown) {
      this.factsShown = JSON.stringify(texts);
      this.facts.replaceChildren(...texts.flatMap(([what, value]) => [make("dt", { text: what }), make("dd", { text: value })]));
    }
    const each = op.each ?? [], bars = JSON.stringify(each);
    if (bars !== this.eachShown) {
      this.eachShown = bars;
      const busy = each.map((one) => one[0]), middle = mean(busy);
      const bar = (one, j) => {
        const inner = make("i");
        inner.style.height = `${Math.round(Math.min(1, one[0]) * 100)}%`;
        return make("span", { title: `instance ${j}: busy ${percent(one[0])}, ${si(one[1])}/s${one[2] === null ? "" : `, ${si(one[2])} wait`}` }, inner);
      };
      this.each.replaceChildren(...(each.length ? [make("p", { text: `Busy share of each instance; the busiest has ${plain(Math.max(...busy) / (middle || 1), 3)} times the mean.` }),
        make("div", { class: "ck-bars" }, ...each.map(bar))] : []));
    }
    const told = this.store.shown.rows.filter((r) => r.act && (r.act.what.split(", ").some((part) => part.startsWith(`${name} `)))).slice(-4);
    const reasons = told.map((r) => `t = ${si(r.t, 6)} s: ${r.say.find((line) => line.startsWith(`${name}:`)) ?? r.act.what}`);
    if (JSON.stringify(reasons) !== this.reasonsShown) {
      this.reasonsShown = JSON.stringify(reasons);
      this.about.replaceChildren(...(reasons.length ? [make("p", { text: "Its last changes" }), ...reasons.map((text) => make("div", { text }))] : []));
    }
  }

  showPlaces(row) {
    const places = row?.places ?? [];
    this.graph.machines.hidden = !places.length;
    if (this.places.hidden || !places.length) { if (!places.length) this.places.replaceChildren(); this.placesShown = null; return; }
    const key = JSON.stringify([places, row.delays]);
    if (key === this.placesShown) return;
    this.placesShown = key;
    const boxes = places.map((place) => {
      const load = make("meter", { min: 0, max: 1, value: place.cpu ?? 0, "aria-label": `cores of ${place.node} in use` });
      const has = Object.entries(place.has).map(([operator, n]) => `${operator}${n > 1 ? ` × ${n}` : ""}`);
      return make("div", { class: "ck-place" }, make("b", { text: place.node }), load,
        make("small", { text: place.cpu === null ? "cores: not measured" : `${percent(place.cpu)} of its cores` }), make("div", { text: has.join(", ") }));
    });
    this.places.replaceChildren(this.map(places, row), make("div", { class: "ck-boxes" }, ...boxes));
  }

  map(places, row) {
    // machines and links: as far apart as their delays, lines as wide as what crosses them
    const names = places.map((place) => place.node), crosses = crossing(this.store.scene, row);
    const delays = new Map((row.delays ?? []).map(([a, b, delay]) => [[a, b].sort().join(BETWEEN), delay]));
    const pairs = [...new Set([...delays.keys(), ...Object.keys(crosses)])];
    if (names.length < 2 || names.length > 24 || !pairs.length) return make("span");
    const [width, height] = [560, Math.min(300, 120 + 40 * names.length)], at = spread(names, row.delays);
    const [x, y] = [scale(-1, 1, 90, width - 90), scale(-1, 1, 40, height - 46)], most = Math.max(1, ...Object.values(crosses));
    const svg = draw("svg", { class: "ck-map", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `machines and links: ${pairs.map((pair) => `${pair.replace(BETWEEN, " and ")}: ${this.link(delays.get(pair), crosses[pair])}`).join("; ")}` });
    const labels = [];
    for (const pair of pairs) {
      const [i, j] = pair.split(BETWEEN).map((name) => names.indexOf(name));
      if (i < 0 || j < 0) continue;
      const [x1, y1, x2, y2] = [x(at[i][0]), y(at[i][1]), x(at[j][0]), y(at[j][1])];  // bent, so that none runs through a third machine
      const [mx, my] = [(x1 + x2) / 2 - (y2 - y1) * 0.3, (y1 + y2) / 2 + (x2 - x1) * 0.3];
      svg.append(draw("path", { d: `M${x1},${y1}Q${mx},${my} ${x2},${y2}`, class: "ck-link", "stroke-width": 1 + 5 * Math.sqrt((crosses[pair] ?? 0) / most) }));
      if (pairs.length > 15) continue;
      const label = draw("text", { x: (x1 + x2 + 2 * mx) / 4, y: (y1 + y2 + 2 * my) / 4 + 4, "text-anchor": "middle", class: "ck-rate", "font-size": 11.5 });
      label.textContent = this.link(delays.get(pair), crosses[pair]);
      labels.push(label);
    }
    svg.append(...labels);
    places.forEach((place, i) => {
      const [cx, cy] = [x(at[i][0]), y(at[i][1])], busy = Math.min(1, place.cpu ?? 0) * 100, label = (dy, text, kind) => {
        const made = draw("text", { x: cx, y: cy + dy, "text-anchor": "middle", class: kind, "font-size": 11.5 });
        made.textContent = text;
        return made;
      };
      const placed = Object.values(place.has).reduce((sum, n) => sum + n, 0);
      svg.append(draw("circle", { cx, cy, r: 19, class: "ck-disc" }), draw("circle", { cx, cy, r: 22, class: "ck-arc ck-idle" }),
        draw("circle", { cx, cy, r: 22, class: "ck-arc ck-busy", pathLength: 100, "stroke-dasharray": `${busy} 100`, transform: `rotate(-90 ${cx} ${cy})` }),
        label(4, String(placed), "ck-count"), label(40, shorten(place.node, 16), "ck-name"));
    });
    return svg;
  }

  link(delay, rate) {
    return [delay === undefined ? "" : seconds(delay), rate ? `${si(rate)}/s` : ""].filter(Boolean).join(", ") || "–";
  }

  showList(rows, notes) {
    const row = this.row, run = this.store.head.run;
    const key = row ? `${run} ${row.t} ${this.span}` : "";
    if (key !== this.nowShown) {
      this.nowShown = key;
      const said = [];
      if (row && !this.span) {
        const i = this.at ?? rows.length - 1;
        said.push(make("b", { text: `t = ${si(row.t, 6)} s: ${row.act ? row.act.what : "stays as it is."}` }), ...row.say.slice(0, 8).map((text) => make("div", { text })));
        let last = i;
        while (row.wait && last >= 0 && rows[last].wait) last -= 1;
        if (row.wait && last >= 0) said.push(make("div", { class: "ck-before", text: `The last time it looked, t = ${si(rows[last].t, 6)} s: ${rows[last].say[0]}` }));
      } else if (row) said.push(make("b", { text: `${rows.slice(this.span[0], this.span[1] + 1).filter((r) => r.act).length} decisions in this span` }));
      this.now.replaceChildren(...said);
    }
    const state = this.listed ??= { run, acted: 0, noted: 0, upTo: 0, last: 0 };
    if (state.upTo === 0 && state.noted === 0) this.list.replaceChildren();
    for (; state.upTo < rows.length; state.upTo++) if (rows[state.upTo].act) this.add(this.entry(rows[state.upTo], state.upTo));
    for (; state.noted < notes.length; state.noted++) this.add(this.hand(notes[state.noted]));
    while (this.list.children.length > 300) this.list.lastChild.remove();
    const [from, to] = this.span ? [rows[this.span[0]].t - rows[this.span[0]].dt, rows[this.span[1]].t] : [-Infinity, Infinity];
    for (const each of this.list.children) {
      const t = Number(each.dataset.t);
      each.hidden = t < from || t > to;
      each.classList.toggle("ck-here", this.at !== null && rows[this.at]?.t === t);
    }
    this.list.classList.toggle("ck-empty", !this.list.children.length);
  }

  add(item) {
    // by time, the newest first
    const t = Number(item.dataset.t);
    const after = [...this.list.children].find((each) => Number(each.dataset.t) <= t);
    this.list.insertBefore(item, after ?? null);
    if (this.store.head.going && performance.now() - (this.spoken ?? 0) > 3000) {
      this.spoken = performance.now();
      put(this.said, `t = ${si(t, 6)} s: ${item.dataset.what}`);
    }
  }

  entry(row, i) {
    const open = make("details", {}, make("summary", { text: "how" }), make("dl", {}, ...row.act.how.flatMap(([key, value]) => [make("dt", { text: key }), make("dd", { text: value })])));
    const item = make("li", { class: "ck-entry" },
      make("button", { type: "button", class: "ck-when", title: "show this window", text: `t = ${si(row.t, 6)} s`, onclick: () => this.go(i) }),
      make("span", { class: "ck-mark", "aria-label": "decision", role: "img", text: "◆" }), make("b", { text: row.act.what }),
      ...row.say.map((text) => make("div", { text })), open);
    Object.assign(item.dataset, { t: row.t, what: row.act.what });
    return item;
  }

  hand(note) {
    const item = make("li", { class: "ck-entry ck-hand" },
      make("button", { type: "button", class: "ck-when", title: "show this window", text: `t = ${si(note.t, 6)} s`, onclick: () => this.go(nearest(this.store.shown.rows, note.t)) }),
      make("span", { class: "ck-mark", "aria-label": "by hand", role: "img", text: "○" }), make("b", { text: note.what }));
    Object.assign(item.dataset, { t: note.t, what: note.what });
    return item;
  }

  run() {
    // records run while the run does, or while it is replayed; never in a hidden tab or against the reader's preference
    const moves = (this.store.head.going && !this.store.head.paused && this.at === null && !this.span) || this.playing;
    if (!moves || this.calm.matches || !this.visible) {
      if (this.calm.matches) this.graph.dots = [];
      return;
    }
    if (this.frame) return;
    let last = performance.now();
    const step = (now) => {
      this.frame = null;
      const still = (this.store.head.going && !this.store.head.paused && this.at === null && !this.span) || this.playing;
      if (!still || !this.visible || this.calm.matches || !this.root.isConnected) return;
      if (now - last >= FRAME_MS - 4) { this.graph.flow(Math.min(0.2, (now - last) / 1000)); last = now; }
      this.frame = requestAnimationFrame(step);
    };
    this.frame = requestAnimationFrame(step);
  }
}

// --------------------------------------------------------------------------------------------------- in notebooks

const stores = new WeakMap();

function portOf(model) {
  return {
    get: (name) => model.get(name),
    send: (content) => model.send(content),
    hear: (act) => model.on("msg:custom", act),
    listen: (names, act) => names.forEach((name) => model.on(`change:${name}`, act)),
  };
}

export default {
  render({ model, el }) {
    if (!stores.has(model)) stores.set(model, new Store(portOf(model)));
    const view = new View(stores.get(model), el);
    return () => view.end();
  },
};

// ------------------------------------------------------------------------------------------------------- in reports

export function replay(element, recording) {
  // a recorded run without a kernel: { scene, head, rows, notes }
  const kept = { scene: recording.scene, head: recording.head, status: "", summary: "", buttons: {} };
  const store = new Store({ get: (name) => kept[name], send: () => {}, hear: () => {}, listen: () => {} });
  store.runs.set(recording.head.run, { rows: recording.rows, notes: recording.notes });
  const view = new View(store, element);
  for (const part of [view.bar, view.status.parentElement, view.branch]) part.hidden = true;  // nothing runs here
  store.redraw(true);
  return view;
}
