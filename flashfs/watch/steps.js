"use strict";
// Shows one step after the other: cells of pages are changed by what each step says, forwards and back.

const data = JSON.parse(document.getElementById("data").textContent);
const one = (id) => document.getElementById(id);
const made = (name, kind, text) => {
  const element = document.createElement(name);
  if (kind) element.className = kind;
  if (text !== undefined) element.textContent = text;
  return element;
};

const cells = [], names = [], undo = [];
for (let block = 0; block < data.blocks; block++) {
  const row = made("div", "block"), name = made("span", "name", `${block}`), box = made("div", "cells");
  for (let page = 0; page < data.pages_per_block; page++) {
    const cell = made("span", "cell erased");
    cells.push({ cell, state: "erased", label: "", says: "erased" });
    box.append(cell);
  }
  names.push({ name, state: "free" });
  row.append(name, box);
  one("blocks").append(row);
}

function put(ppa, state, label, says) {
  const now = cells[ppa], before = [ppa, now.state, now.label, now.says];
  Object.assign(now, { state, label, says });
  now.cell.className = `cell ${state}`;
  now.cell.textContent = label;
  now.cell.title = `PPA ${ppa}: ${says}`;
  return before;
}

function name(block, state) {
  const before = [block, names[block].state];
  names[block].state = state;
  names[block].name.textContent = `${block} ${state}`;
  return before;
}

const width = 8.5 + 2.5 * Math.min(16, data.pages_per_block);
one("blocks").style.gridTemplateColumns = `repeat(auto-fill, minmax(min(100%, ${width}rem), 1fr))`;

let at = -1, playing = null;

function forward() {
  const step = data.steps[at + 1];
  undo.push({ pages: step.pages.map((page) => put(...page)), blocks: step.blocks.map((block) => name(...block)) });
  at++;
}

function back() {
  const step = undo.pop();
  step.pages.forEach((page) => put(...page));
  step.blocks.forEach((block) => name(...block));
  at--;
}

function show(wanted) {
  wanted = Math.max(0, Math.min(data.steps.length - 1, wanted));
  for (const page of cells) page.cell.classList.remove("new");
  while (at < wanted) forward();
  while (at > wanted) back();
  const step = data.steps[at];
  if (at > 0) for (const [ppa] of step.pages) cells[ppa].cell.classList.add("new");
  one("what").textContent = `${at} of ${data.steps.length - 1}: ${step.what}`;
  one("at").value = at;
  one("did").replaceChildren(...step.did.map((line) => made("li", "", line)));
  if (at > 0 && !step.did.length) one("did").append(made("li", "about", "nothing reached the flash"));
  one("figures").replaceChildren(...Object.entries(step.figures).map(([key, value]) => {
    const pair = made("div");
    pair.append(made("dt", "", key), made("dd", "", value === null ? "-" : value));
    return pair;
  }));
}

function play() {
  if (playing !== null) {
    clearInterval(playing);
    playing = null;
  } else {
    playing = setInterval(() => (at < data.steps.length - 1 ? show(at + 1) : play()), 400);
  }
  one("play").textContent = playing === null ? "play" : "pause";
}

one("at").max = data.steps.length - 1;
one("at").addEventListener("input", () => show(Number(one("at").value)));
one("first").addEventListener("click", () => show(0));
one("back").addEventListener("click", () => show(at - 1));
one("next").addEventListener("click", () => show(at + 1));
one("last").addEventListener("click", () => show(data.steps.length - 1));
one("play").addEventListener("click", play);
document.addEventListener("keydown", (event) => {
  const moves = { ArrowRight: 1, ArrowLeft: -1 };
  if (event.key in moves && event.target !== one("at")) show(at + moves[event.key]);
  else if (event.key === " " && event.target.tagName !== "BUTTON") play();
  else return;
  event.preventDefault();
});
const seen = new Set(data.steps.flatMap((step) => step.pages.map((page) => page[1])));
for (const state of ["erased", ...[...seen].filter((state) => state !== "erased").sort()]) {
  const key = made("li");
  key.append(made("span", `cell ${state}`), state === "superseded" ? "dead" : state);
  one("keys").append(key);
}
show(0);
