"use strict";

// Changes: a dialog that shows what an action is, then its plan, then what its command says until it has ended.
// Nothing is decided here: the command decides, and what it says is shown.

const RUN_SECONDS = 0.5, CHARACTER_PIXELS = 7.9, PLAN_SECONDS = 600;

let acting = null; // { name, title, from, chosen, plannedAt }, of the dialog that is open

const dialog = () => byId("act");
const actBody = () => byId("act-body");

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-action]");
  if (button) openAction(button.dataset.action, button.dataset.title, button);
  const run = event.target.closest("button[data-open-run]");
  if (run) openRun(run.dataset.openRun, run.dataset.title, run);
  if (event.target.closest("#act-close")) dialog().close();
  if (event.target.closest("#act-again")) plan();
});

function open(title, from, name) {
  acting = { name, title, from: from.id, chosen: "" };
  byId("act-title").textContent = title;
  actBody().replaceChildren();
  if (!dialog().open) dialog().showModal();
  return acting;
}

byId("act")?.addEventListener("close", () => {
  const from = acting?.from;
  acting = null;
  if (from) byId(from)?.focus();
});

function openAction(name, title, from) {
  const mine = open(title, from, name);
  withToken(mine, async () => {
    if (!await show(mine, fetch(`/actions/${name}`))) {
      if (acting === mine && document.body.dataset.known === "no") openAction(name, title, from);
      return;
    }
    if (byId("act-choose")?.dataset.now === "yes") plan();
    else actBody().querySelector("select")?.focus();
  });
}

function openRun(id, title, from) {
  const mine = open(title, from, "");
  withToken(mine, async () => { if (await show(mine, fetch(`/runs/${id}`))) follow(mine, id); });
}

// The token is asked for once; then the session is known.
function withToken(mine, then) {
  if (document.body.dataset.known === "yes") {
    then();
    return;
  }
  const asked = tokenForm(() => { if (acting === mine) then(); }, "Changes need the token that the command printed", "Go on");
  actBody().replaceChildren(asked);
  asked.querySelector("input").focus();
}

// Shows an answer in the dialog; false: it was none, or the dialog is closed.
async function show(mine, asked, place) {
  const answer = await asked.catch(() => null);
  if (acting !== mine) return false;
  const into = place || actBody();
  if (answer && answer.ok) {
    into.innerHTML = await answer.text();
    return acting === mine;
  }
  if (answer && answer.status === 401) document.body.dataset.known = "no";
  into.replaceChildren(trouble(answer ? await answer.text() : "The console does not answer. Look at the page before you repeat it."));
  return false;
}

function trouble(text) {
  const made = document.createElement("p");
  made.className = "trouble";
  made.setAttribute("role", "alert");
  made.textContent = text;
  return made;
}

function send(path, values) {
  const columns = Math.floor((actBody().clientWidth - 70) / CHARACTER_PIXELS);
  return fetch(path, {
    method: "POST",
    headers: { "content-type": "application/json", "tripstore-console": document.body.dataset.seal },
    body: JSON.stringify({ ...values, columns: Math.max(columns, 1) }),
  });
}

async function plan() {
  const mine = acting;
  const form = byId("act-choose");
  if (!mine || !form) return;
  mine.chosen = form.elements.chosen?.value || "";
  const button = form.querySelector("button");
  for (const each of form.elements) each.disabled = true; // what is chosen stays what the plan is of
  const waits = document.createElement("p");
  waits.className = "soft";
  waits.setAttribute("role", "status");
  waits.textContent = "Looking at the stores…";
  byId("act-plan").replaceChildren(waits);
  const isShown = await show(mine, send(`/plans/${mine.name}`, { chosen: mine.chosen }), byId("act-plan"));
  mine.plannedAt = performance.now();
  for (const each of form.elements) each.disabled = false;
  button.hidden = form.dataset.alone === "yes" && isShown;
  if (isShown) byId("act-do")?.elements[0].focus();
  else if (acting === mine) button.focus();
}

async function perform(form) {
  const mine = acting;
  if (performance.now() - mine.plannedAt > 1000 * PLAN_SECONDS) {
    await plan();
    if (acting === mine) byId("act-plan").prepend(trouble("The plan was old, so nothing was changed. This is the plan of now."));
    return;
  }
  const button = form.querySelector("button");
  button.disabled = true;
  const values = { chosen: mine.chosen, why: form.elements.why?.value || "", typed: form.elements.typed.value.trim() };
  const answer = await send(`/actions/${mine.name}`, values).catch(() => null);
  if (acting !== mine) return;
  if (answer && answer.ok) {
    actBody().innerHTML = await answer.text();
    actBody().focus();
    follow(mine, byId("act-run").dataset.run);
    return;
  }
  if (answer && answer.status === 401) { // another console has begun: what is typed is of no use to it
    document.body.dataset.known = "no";
    withToken(mine, () => openAction(mine.name, mine.title, byId(mine.from)));
    return;
  }
  button.disabled = false;
  byId("act-trouble").textContent = answer ? await answer.text() : "The console does not answer. Look at the page before you repeat it.";
  byId("act-trouble").hidden = false;
}

async function follow(mine, id) {
  while (acting === mine && byId("act-run")?.dataset.ended === "no") {
    await new Promise((resolve) => setTimeout(resolve, 1000 * RUN_SECONDS));
    const answer = await fetch(`/runs/${id}`).catch(() => null);
    if (acting !== mine) return;
    if (answer && answer.status === 404) actBody().replaceChildren(trouble(await answer.text()));
    else if (answer && answer.ok) replace(mine, await answer.text());
    else if (!answer && !actBody().querySelector(".trouble")) actBody().append(trouble("The console does not answer. What it began goes on without it."));
  }
  if (acting === mine) say(`${mine.title}: ${actBody().querySelector(".tag")?.textContent || ""}`);
}

// What an operator reads stays where it was scrolled to, and unfolded.
function replace(mine, text) {
  if (mine.shownText === text || acting !== mine) return;
  mine.shownText = text;
  const [top, open] = [".said", "details"].map((each) => actBody().querySelector(each));
  const place = [top?.scrollTop, open?.open, actBody().contains(document.activeElement)];
  actBody().innerHTML = text;
  if (actBody().querySelector(".said")) actBody().querySelector(".said").scrollTop = place[0] || 0;
  if (place[1]) actBody().querySelector("details")?.setAttribute("open", "");
  if (place[2]) actBody().focus();
}

document.addEventListener("change", (event) => {
  if (event.target.closest("#act-choose")) byId("act-plan").replaceChildren();
});

document.addEventListener("submit", (event) => {
  if (event.target.id === "act-choose") {
    event.preventDefault();
    plan();
  } else if (event.target.id === "act-do") {
    event.preventDefault();
    perform(event.target);
  }
});
