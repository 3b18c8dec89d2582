"use strict";

// Hears what is new, fetches the text of a section when its version is another one, and draws the charts.
// Texts of sections come from the console alone, which escapes what databases say.

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 400, HEIGHT = 110, LEFT = 44, RIGHT = 394, TOP = 8, BOTTOM = 88;
const SHOWN_SECONDS = 1800, POINTS_MAX = 900;
const OLD_LOOKS = 3, OLD_SECONDS = 6, BEAT_SECONDS = 25, AGAIN_SECONDS = 2;

const pages = new Map();
const unfolded = new Map();
const charts = new Map();
let heardAt = performance.now();
let events = null;
let ahead = 0; // of the console's clock, in milliseconds: ages are told by that, not by this machine's

const byId = (id) => document.getElementById(id);
const say = (text) => { byId("said").textContent = text; };

function live(kind, text) {
  byId("live").className = `live ${kind}`;
  if (byId("live-text").textContent !== text) byId("live-text").textContent = text;
}

// Sections.

const consoleNow = () => Date.now() + ahead;

function hear(news) {
  ahead = Date.parse(news.now) - Date.now();
  const section = byId(news.section);
  if (!section) return;
  const trouble = byId(`${news.section}-trouble`);
  if (trouble.textContent !== (news.trouble || "")) {
    trouble.textContent = news.trouble || "";
    trouble.hidden = !news.trouble;
    const title = section.querySelector("h2").textContent;
    say(news.trouble ? `${title}: ${news.trouble}` : `${title} is known again.`);
  }
  section.dataset.seconds = news.seconds;
  section.dataset.failed = news.trouble ? "yes" : "";
  // The time is that of the text: where the text did not come, it is asked for again at the next news.
  if (section.dataset.version === news.version) {
    if (news.at) setTime(section, news.at);
  } else if (news.at) {
    load(news.section);
  }
  age(section);
}

function setTime(section, at) {
  const line = section.querySelector(".as-of");
  line.dataset.at = at;
  const time = document.createElement("time");
  time.dateTime = at;
  time.textContent = at.slice(11, 19);
  line.replaceChildren("as of ", time, " UTC");
}

async function load(name) {
  const section = byId(name);
  const wanted = pages.get(name) || 1;
  const body = section.querySelector(".section-body");
  if (isInUse(body)) return;
  const asked = section.asked = (section.asked || 0) + 1;
  const answer = await fetch(`/sections/${name}?page=${wanted}`).catch(() => null);
  if (answer && answer.status === 401) location.reload();
  if (!answer || !answer.ok) return;
  const text = await answer.text().catch(() => null);
  if (text === null || asked !== section.asked || isInUse(body)) return;
  section.dataset.version = answer.headers.get("tripstore-version");
  const at = answer.headers.get("tripstore-at");
  if (at) setTime(section, at);
  if (section.shownText === text) return;
  section.shownText = text;
  const focused = body.contains(document.activeElement) ? document.activeElement : null;
  const open = [...body.querySelectorAll("details[open]")].map((each) => each.id);
  const made = document.createElement("template");
  made.innerHTML = text;
  for (const id of open) made.content.getElementById(id)?.setAttribute("open", "");
  body.replaceChildren(made.content);
  for (const id of unfolded.keys()) put(id);
  if (focused) again(focused)?.focus({ preventScroll: true });
}

// An operator types there, or marks a text to copy it. The next news asks again.
function isInUse(body) {
  const marked = document.getSelection();
  return Boolean(body.querySelector("form")) || (!marked.isCollapsed && body.contains(marked.anchorNode));
}

// What has the focus once a text has come anew: the same, or beside it what can be pressed.
function again(focused) {
  const same = focused.id ? byId(focused.id) : null;
  return same?.disabled ? same.parentNode.querySelector("button:not(:disabled)") : same;
}

function age(section) {
  const at = section.querySelector(".as-of")?.dataset.at;
  if (!section.dataset.seconds) return;
  const seconds = at ? (consoleNow() - Date.parse(at)) / 1000 : 0;
  const isOld = section.dataset.failed === "yes" || (at && seconds > OLD_LOOKS * section.dataset.seconds + OLD_SECONDS);
  section.classList.toggle("is-old", Boolean(isOld));
  document.querySelector(`[data-for="${section.id}"]`)?.classList.toggle("in-trouble", Boolean(isOld));
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-page]");
  if (!button) return;
  const section = button.closest("main > section");
  pages.set(section.id, Number(button.dataset.page));
  load(section.id);
});

// Mismatches. What was unfolded stays so when its list comes anew.

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-mismatch]");
  if (!button) return;
  const id = button.dataset.mismatch;
  if (unfolded.has(id)) {
    unfolded.delete(id);
    byId(`more-${id}`)?.remove();
    button.setAttribute("aria-expanded", "false");
  } else {
    unfolded.set(id, "");
    unfold(id);
  }
});

async function unfold(id) {
  if (document.body.dataset.known !== "yes") {
    unfolded.set(id, tokenForm(() => unfold(id)));
    put(id);
    return;
  }
  const answer = await fetch(`/mismatches/${id}`).catch(() => null);
  if (!unfolded.has(id)) return;
  if (answer && answer.status === 401) {
    document.body.dataset.known = "no";
    unfolded.set(id, tokenForm(() => unfold(id)));
  } else {
    const made = document.createElement(answer && answer.ok ? "div" : "p");
    const text = answer ? await answer.text() : "The console does not answer.";
    if (answer && answer.ok) made.innerHTML = text;
    else made.textContent = text;
    unfolded.set(id, made);
  }
  put(id);
}

function put(id) {
  const button = byId(`open-${id}`);
  const shown = unfolded.get(id);
  if (!button || !shown) return;
  button.setAttribute("aria-expanded", "true");
  button.setAttribute("aria-controls", `more-${id}`);
  let row = byId(`more-${id}`);
  if (!row) {
    row = button.closest("tbody").insertRow();
    row.id = `more-${id}`;
    row.className = "more";
    row.setAttribute("role", "row");
    row.insertCell().colSpan = 5;
    row.cells[0].setAttribute("role", "cell");
  }
  // What is there already stays where it is: an operator may be typing in it.
  if (shown.parentNode !== row.cells[0]) row.cells[0].replaceChildren(shown);
}

function tokenForm(then, what = "Bodies are shown for the token that the command printed", verb = "Show bodies") {
  const form = document.createElement("form");
  form.className = "token-form";
  const label = document.createElement("label");
  const input = document.createElement("input");
  input.type = "password";
  input.autocomplete = "off";
  input.required = true;
  label.append(what, input);
  const button = document.createElement("button");
  button.className = "plain";
  button.textContent = verb;
  const trouble = document.createElement("p");
  trouble.className = "trouble";
  trouble.setAttribute("role", "alert");
  trouble.hidden = true;
  form.append(label, button, trouble);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const said = await give(input.value);
    trouble.textContent = said;
    trouble.hidden = !said;
    if (!said) then();
  });
  return form;
}

async function give(token) {
  const answer = await fetch("/session", {
    method: "POST",
    headers: { "content-type": "application/json", "tripstore-console": "1" },
    body: JSON.stringify({ token: token.trim() }),
  }).catch(() => null);
  if (answer && answer.ok) {
    document.body.dataset.known = "yes";
    document.body.dataset.seal = (await answer.json()).seal;
    return "";
  }
  return answer ? answer.text() : "The console does not answer.";
}

// Charts.

function element(name, attributes, ...inner) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...inner);
  return made;
}

function shown(number, unit) {
  const digits = number >= 100 || Number.isInteger(number) ? 0 : number >= 10 ? 1 : 2;
  const text = number.toLocaleString("en-GB", { minimumFractionDigits: 0, maximumFractionDigits: digits });
  return unit ? `${text}\u00a0${unit}` : text;
}

function ceiling(number) {
  if (number <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(number));
  return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= number);
}

function draw(chart) {
  if (!chart.points.length) { // another console has begun, and knows nothing of before
    chart.figure?.remove();
    chart.figure = null;
    return;
  }
  if (!chart.figure) place(chart);
  const last = chart.points[chart.points.length - 1];
  const from = Math.max(chart.points[0][0], last[0] - SHOWN_SECONDS);
  const span = Math.max(last[0] - from, 60);
  const points = chart.points.filter(([at]) => at >= last[0] - span);
  const top = ceiling(Math.max(...points.map(([, value]) => value)));
  const x = (at) => RIGHT - ((last[0] - at) / span) * (RIGHT - LEFT);
  const y = (value) => BOTTOM - (value / top) * (BOTTOM - TOP);
  const line = points.map(([at, value], index) => `${index ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  const parts = [0, top].map((value) => [
    element("line", { class: "grid", x1: LEFT, x2: RIGHT, y1: y(value), y2: y(value) }),
    element("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, shown(value, "")),
  ]).flat();
  const minutes = span >= 120 ? `${Math.round(span / 60)} min ago` : `${Math.round(span)} s ago`;
  parts.push(
    element("text", { x: LEFT, y: HEIGHT - 4 }, minutes),
    element("text", { class: "last", x: RIGHT, y: HEIGHT - 4, "text-anchor": "end" }, "now"),
    element("path", { class: "area", d: `${line}L${x(last[0])} ${BOTTOM}L${x(points[0][0]).toFixed(1)} ${BOTTOM}Z` }),
    element("path", { class: "main", d: line }),
    element("circle", { class: "end", cx: x(last[0]), cy: y(last[1]), r: 3 }),
  );
  chart.svg.replaceChildren(...parts);
  const values = points.map(([, value]) => value);
  const now = shown(last[1], chart.unit);
  chart.svg.setAttribute("aria-label",
    `${chart.title}: ${now} now; between ${shown(Math.min(...values), chart.unit)} and ${shown(Math.max(...values), chart.unit)} since ${minutes}.`);
  chart.now.textContent = now;
}

function place(chart) {
  const list = byId("chart-list");
  list.querySelector(".none")?.remove();
  chart.figure = document.createElement("figure");
  chart.figure.className = "chart";
  chart.figure.dataset.chart = chart.name;
  const caption = document.createElement("figcaption");
  const title = document.createElement("b");
  title.textContent = chart.title;
  chart.now = document.createElement("span");
  chart.now.className = "now";
  caption.append(title, chart.now);
  chart.svg = element("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" });
  chart.figure.append(caption, chart.svg);
  const after = [...charts.values()].slice([...charts.values()].indexOf(chart) + 1).find((each) => each.figure);
  list.insertBefore(chart.figure, after ? after.figure : null);
}

// Events.

function begin() {
  events?.close();
  events = null;
  heardAt = performance.now();
  if (document.hidden) return;
  events = new EventSource("/events");
  events.addEventListener("all", (event) => {
    const all = JSON.parse(event.data);
    charts.forEach((chart) => { chart.points = []; });
    for (const each of all.charts) charts.set(each.name, { ...charts.get(each.name), ...each });
    for (const chart of charts.values()) draw(chart);
    all.sections.forEach(hear);
    heard();
  });
  events.addEventListener("section", (event) => {
    const news = JSON.parse(event.data);
    hear(news);
    for (const [name, point] of Object.entries(news.points)) {
      const chart = charts.get(name);
      if (!chart) continue;
      chart.points.push(point);
      if (chart.points.length > POINTS_MAX) chart.points.shift();
      draw(chart);
    }
    heard();
  });
  events.addEventListener("beat", heard);
  const mine = events;
  mine.onerror = async () => {
    live("is-lost", "Connection lost");
    const answer = await fetch("/sections/jobs").catch(() => null);
    if (answer && answer.status === 401) location.reload();
    // Another stream may have begun meanwhile: two would draw each point twice.
    if (mine.readyState === EventSource.CLOSED) setTimeout(() => { if (events === mine) begin(); }, 1000 * AGAIN_SECONDS);
  };
}

function heard() {
  heardAt = performance.now();
  live("is-live", "Live");
}

// A number that is old says of when it is.
function ageCharts() {
  for (const chart of charts.values()) {
    if (!chart.figure) continue;
    const at = chart.points.length ? chart.points[chart.points.length - 1][0] : 0;
    const isOld = consoleNow() / 1000 - at > OLD_LOOKS * byId(chart.section).dataset.seconds + OLD_SECONDS;
    chart.figure.classList.toggle("is-old", isOld);
    chart.svg.querySelector(".last").textContent = isOld ? new Date(1000 * at).toISOString().slice(11, 19) : "now";
  }
}

function tick() {
  ageCharts();
  if (performance.now() - heardAt > 1000 * BEAT_SECONDS) {
    live("is-lost", "Connection lost");
    if (events) begin(); // a network that went away in silence ends no stream
  }
  document.querySelectorAll("main > section").forEach(age);
}

function login(form) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const said = await give(byId("token").value);
    if (!said) {
      location.reload();
      return;
    }
    byId("login-trouble").textContent = said;
    byId("login-trouble").hidden = false;
  });
}

if (byId("login")) {
  login(byId("login"));
} else {
  // A page that is not looked at costs no look: the console stops when no page listens.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      events?.close();
      events = null;
    } else if (!events) {
      begin();
    }
  });
  if (!document.hidden) begin();
  setInterval(tick, 1000);
}
