
"use strict";
// Draws the maps of cells and the density pictures from the JSON beside each canvas. Texts are only ever set as text.

const style = () => getComputedStyle(document.documentElement);
const element = (name, text, kind) => {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (kind) made.className = kind;
  return made;
};
const number = (value) => (typeof value === "number" ? value.toLocaleString("en") : String(value));

// A colour between low, middle and high; share is 0 to 1.
function ramp(share) {
  const stops = ["--low", "--middle", "--high"].map((name) => style().getPropertyValue(name).trim().split(/\s+/).map(Number));
  const table = [];
  for (let step = 0; step <= 64; step++) {
    const at = (step / 64) * 2, low = Math.min(1, Math.floor(at)), part = at - low;
    table.push(`rgb(${stops[low].map((one, index) => Math.round(one + part * (stops[low + 1][index] - one))).join(" ")})`);
  }
  return table[Math.round(64 * Math.max(0, Math.min(1, share)))];
}
const ramps = () => Array.from({ length: 65 }, (_, step) => ramp(step / 64));

// A canvas of so many CSS pixels, sharp on every screen.
function sized(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  return context;
}

class CellMap {
  constructor(root) {
    this.root = root;
    this.data = JSON.parse(root.querySelector("script").textContent);
    this.fields = new Map(this.data.fields.map((field) => [field.name, field]));
    this.canvas = root.querySelector("canvas");
    this.input = root.querySelector("input");
    this.select = root.querySelector("select");
    this.view = this.data.views[0];
    this.chosen = null;
    this.canvas.dataset.count = this.data.n;
    this.canvas.addEventListener("mousemove", (event) => this.show(this.at(event)));
    this.canvas.addEventListener("mouseleave", () => this.show(this.chosen));
    this.canvas.addEventListener("click", (event) => this.choose(this.at(event)));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.input.addEventListener("input", () => {
      const block = Number(this.input.value);
      if (this.input.value !== "" && Number.isInteger(block) && block >= 0 && block < this.data.total) {
        this.choose(Math.floor(block / this.data.each), false);
      }
    });
    if (this.select) {
      this.select.addEventListener("change", () => {
        this.view = this.data.views[Number(this.select.value)];
        this.draw();
      });
    }
    new ResizeObserver(() => this.draw()).observe(root);
    this.draw();
    const named = new RegExp(`^#${this.data.item}=(\\d+)$`).exec(location.hash);
    if (named && Number(named[1]) < this.data.total) this.choose(Math.floor(Number(named[1]) / this.data.each));
  }

  // The word of the state of a cell, or none.
  state(cell) {
    const field = this.fields.get("state");
    return field ? field.words[field.values[cell]] : "";
  }

  layout() {
    const width = this.canvas.clientWidth || this.root.clientWidth, n = this.data.n;
    let size = 22;
    while (size > 4 && Math.ceil(n / Math.max(1, Math.floor(width / size))) * size > 380) size--;
    this.size = size;
    this.columns = Math.max(1, Math.floor(width / size));
    this.rows = Math.ceil(n / this.columns);
    Object.assign(this.canvas.dataset, { columns: this.columns, size });
    return width;
  }

  draw() {
    const width = this.layout(), context = sized(this.canvas, width, this.rows * this.size);
    const field = this.fields.get(this.view.field), colours = ramps(), css = style(), known = new Map();
    const plain = (word) => {
      if (!known.has(word)) known.set(word, css.getPropertyValue(`--${word}`).trim() || colours[64]);
      return known.get(word);
    };
    let low = 0, top = field.top || 0;
    if (!field.words && !field.top) {
      const values = field.values.filter((_, cell) => !(this.view.masks || []).includes(this.state(cell)));
      low = values.reduce((a, b) => Math.min(a, b), values.length ? values[0] : 0);
      top = values.reduce((a, b) => Math.max(a, b), low);
    }
    const gap = this.size > 6 ? 1.5 : this.size > 4 ? 1 : 0.5;
    for (let cell = 0; cell < this.data.n; cell++) {
      const x = (cell % this.columns) * this.size, y = Math.floor(cell / this.columns) * this.size;
      const state = this.state(cell), value = field.values[cell];
      if (field.words) context.fillStyle = plain(field.words[value]);
      else if ((this.view.masks || []).includes(state) || value === null) context.fillStyle = plain(state || "free");
      else context.fillStyle = colours[Math.round((64 * (value - low)) / Math.max(1e-9, top - low || 1))];
      context.fillRect(x, y, this.size - gap, this.size - gap);
      if (state === "open" && !field.words && this.size > 6) {
        context.strokeStyle = plain("open");
        context.lineWidth = 2;
        context.strokeRect(x + 1, y + 1, this.size - gap - 2, this.size - gap - 2);
      }
    }
    if (this.chosen !== null) this.ring(context, this.chosen);
    this.legend(field, low, top, plain);
  }

  ring(context, cell) {
    context.strokeStyle = style().getPropertyValue("--text");
    context.lineWidth = 2;
    const x = (cell % this.columns) * this.size, y = Math.floor(cell / this.columns) * this.size;
    context.strokeRect(x, y, this.size - 1, this.size - 1);
  }

  legend(field, low, top, plain) {
    const legend = this.root.querySelector(".legend"), counts = new Map();
    legend.replaceChildren();
    const states = this.fields.get("state");
    if (states) for (const value of states.values) counts.set(states.words[value], (counts.get(states.words[value]) || 0) + 1);
    const item = (colour, text) => {
      const span = element("span"), swatch = element("canvas", undefined, "swatch");
      swatch.width = swatch.height = 1;
      const context = swatch.getContext("2d");
      context.fillStyle = colour;
      context.fillRect(0, 0, 1, 1);
      span.append(swatch, text);
      legend.append(span);
    };
    if (field.words) {
      const seen = new Map();
      for (const value of field.values) seen.set(value, (seen.get(value) || 0) + 1);
      for (const [value, n] of [...seen].sort((a, b) => a[0] - b[0])) item(plain(field.words[value]), `${field.words[value]} ${number(n)}`);
      return;
    }
    const span = element("span"), scale = element("canvas");
    scale.width = 65;
    scale.height = 1;
    const context = scale.getContext("2d");
    ramps().forEach((colour, step) => {
      context.fillStyle = colour;
      context.fillRect(step, 0, 1, 1);
    });
    span.append(`${this.view.label} ${number(low)}`, scale, number(top));
    legend.append(span);
    for (const word of this.view.masks || []) if (counts.get(word)) item(plain(word), `${word} ${number(counts.get(word))}`);
    if (counts.get("open") && this.size > 6) item(plain("open"), `framed: open ${number(counts.get("open"))}`);
    if (field.values.includes(null)) item(plain("free"), "none");
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) / this.size), row = Math.floor((event.clientY - box.top) / this.size);
    const cell = row * this.columns + column;
    return column >= 0 && column < this.columns && cell >= 0 && cell < this.data.n ? cell : null;
  }

  choose(cell, tell = true) {
    if (cell === null) return;
    this.chosen = cell;
    if (tell) this.input.value = cell * this.data.each;
    this.draw();
    this.show(cell);
  }

  key(event) {
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.columns, ArrowUp: -this.columns };
    if (event.key in steps) {
      event.preventDefault();
      const next = this.chosen === null ? 0 : this.chosen + steps[event.key];
      if (next >= 0 && next < this.data.n) this.choose(next);
    }
  }

  show(cell) {
    const picked = this.root.querySelector(".picked");
    picked.replaceChildren();
    if (cell === null) return;
    const first = cell * this.data.each, last = Math.min(this.data.total, first + this.data.each) - 1;
    const list = element("dl", undefined, "facts");
    const add = (name, text) => {
      const pair = element("div");
      pair.append(element("dt", name), element("dd", text));
      pair.dataset.field = name;
      list.append(pair);
    };
    add(this.data.item, first === last ? number(first) : `${number(first)} to ${number(last)}`);
    for (const field of this.data.fields) {
      const value = field.values[cell];
      const text = value === null ? "-" : field.words ? field.words[value] : number(value);
      add(field.name, field.unit && value !== null ? `${text} ${field.unit}` : text);
    }
    picked.append(list);
  }
}

// How many points of a picture fall into each of its cells; the more, the darker. Row 0 is the lowest.
class Density {
  constructor(root) {
    this.data = JSON.parse(root.querySelector("script").textContent);
    this.canvas = root.querySelector("canvas");
    this.draw();
  }

  draw() {
    const { columns, rows, cells } = this.data, colours = ramps();
    this.canvas.width = columns;
    this.canvas.height = rows;
    const context = this.canvas.getContext("2d"), top = Math.max(1, ...cells);
    cells.forEach((n, index) => {
      if (!n) return;
      context.fillStyle = colours[Math.round(64 * (0.35 + 0.65 * Math.sqrt(n / top)))];
      context.fillRect(index % columns, rows - 1 - Math.floor(index / columns), 1, 1);
    });
  }
}

const drawn = [
  ...[...document.querySelectorAll(".map")].map((root) => new CellMap(root)),
  ...[...document.querySelectorAll(".density")].map((root) => new Density(root)),
];
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawn.forEach((one) => one.draw()));
document.documentElement.dataset.drawn = drawn.length;
