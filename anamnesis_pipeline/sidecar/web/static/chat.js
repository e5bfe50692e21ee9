// A conversation: sends messages, shows streamed answers, and stops them.
"use strict";

const LARGEST_FILE = 1_000_000; // bytes; the server's limit
const TOLD_BYTES = 200 * 1024; // bytes of a file that the model gets
const MOST_FILES = Number(document.getElementById("chat").dataset.mostFiles);
const NEAR_THE_END_PX = 120;
const STOP_MS = 4_000; // time for the server to end an answer; then the connection is closed

const chat = document.getElementById("chat");
const form = document.getElementById("write");
const box = document.getElementById("message");
const turns = document.getElementById("turns");
const sessions = document.getElementById("sessions");
const isWide = matchMedia("(min-width: 64rem)");
const ownId = newId(); // id of a new conversation, chosen here so that it can be stopped at once
let running = null; // the answer in progress
let attached = [];
const sent = new WeakMap(); // a question's element -> its request, for a retry

function element(name, className, text = "") {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.textContent = text;
  return made;
}

function button(text, onClick) {
  const made = element("button", "", text);
  made.type = "button";
  made.addEventListener("click", onClick);
  return made;
}

// crypto.randomUUID exists only on https and localhost.
function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40; // version 4, RFC 9562
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const digits = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return digits.replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}

function sessionId() {
  return chat.dataset.session || ownId;
}

function isNearTheEnd() {
  const page = document.documentElement;
  return page.scrollHeight - page.scrollTop - page.clientHeight < NEAR_THE_END_PX;
}

function toTheEnd() {
  window.scrollTo({ top: document.documentElement.scrollHeight });
}

function tellOnce(text) {
  if (![...document.querySelectorAll(".toast")].some((each) => each.textContent === text)) toast(text);
}

function announce(text) {
  document.getElementById("said-aloud").textContent = text;
}

// --- the session ---------------------------------------------------------------------------------------------

// The first message created a session.
function openSession({ session_id: id }) {
  if (chat.dataset.session === id) return;
  inTab.forget(draftKey());
  chat.dataset.session = id;
  keepDraft();
  chat.classList.replace("is-new", "is-open");
  document.getElementById("session-open").value = id;
  history.replaceState(null, "", `/chat/${encodeURIComponent(id)}`);
  htmx.ajax("GET", `/chat/${encodeURIComponent(id)}/head`, { target: "#chat-head", swap: "outerHTML" });
  document.body.dispatchEvent(new CustomEvent("sessions"));
}

// --- the stream ----------------------------------------------------------------------------------------------

async function* eventsOf(reply) {
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    const blocks = rest.split(/\r?\n\r?\n/);
    rest = blocks.pop();
    for (const block of blocks) {
      const data = block.split(/\r?\n/).filter((line) => line.startsWith("data:")).map((line) => line.slice(5)).join("\n");
      if (data) yield JSON.parse(data);
    }
  }
}

async function read(answer) {
  const reply = await fetch("/api/chat/stream", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ ...answer.body, session_id: sessionId(), goes_on: Boolean(chat.dataset.session) }),
    signal: answer.abort.signal,
  });
  if (reply.status === 401) return unsend(answer);
  if (!reply.ok) {
    keepDraft(box.value || answer.body.message); // nothing is stored: restore it in the box after a reload
    return answer.refuse(reply);
  }
  for await (const event of eventsOf(reply)) {
    answer.take(event);
    if (!event.done) continue;
    over(answer); // the next message need not wait for the rest of this one
    return answer.finish(event);
  }
  if (!answer.failed) answer.fail("The connection ended before the answer did. What was said so far is kept.");
}

// The login returns to this page, with the message in the box.
function unsend(answer) {
  box.value = [answer.body.message, box.value].filter(Boolean).join("\n\n");
  keepDraft();
  running = null; // skip the confirmation when leaving
  logIn();
}

async function ask(answer) {
  running = answer;
  show(true);
  try {
    await read(answer);
  } catch (problem) {
    over(answer);
    if (problem.name === "AbortError") await answer.leave();
    else answer.fail("The server cannot be reached. Is it running? `anamnesis up` starts it.");
  } finally {
    over(answer);
  }
}

function over(answer) {
  if (running !== answer) return;
  running = null;
  show(false);
}

function show(isRunning) {
  const [send, stop] = [document.getElementById("send"), document.getElementById("stop")];
  const hadFocus = [send, stop].includes(document.activeElement);
  send.hidden = isRunning;
  stop.hidden = !isRunning;
  stop.textContent = "Stop";
  turns.setAttribute("aria-busy", String(isRunning));
  if (hadFocus) (isRunning ? stop : box).focus();
}

function send(body) {
  document.getElementById("welcome")?.remove();
  const question = element("li", "turn user");
  question.append(element("h2", "visually-hidden", "Question"), element("div", "said", body.message));
  if (body.attachments) question.append(fileList(body.attachments.map((file) => element("li", "tag", file.name))));
  turns.append(question);
  sent.set(question, body);
  const answer = new Answer(question, body);
  keepDraft();
  toTheEnd();
  return ask(answer);
}

// Retry a question, with its files if this page still has them; the partial answer stays.
function askAgain(failed, question) {
  if (running) return;
  const message = question.querySelector(".said").textContent;
  const names = [...question.querySelectorAll(".files .tag")].map((each) => each.textContent);
  const body = sent.get(question);
  if (names.length && !body) {
    box.value = message;
    box.focus();
    return toast(`Attach ${names.join(", ")} again, then send: the server keeps no files of a chat.`, { bad: true });
  }
  if (failed === turns.lastElementChild) { // the server renders both again
    failed.remove();
    question.remove();
  }
  const { attachments: _, ...again } = written(message); // by the selected model
  send({ ...again, ...(body?.attachments && { attachments: body.attachments }) });
  document.getElementById("stop").focus(); // the pressed button is removed
}

function fileList(rows) {
  const list = element("ul", "files");
  list.setAttribute("aria-label", "Attached files");
  list.append(...rows);
  return list;
}

async function stop() {
  const answer = running;
  if (!answer || answer.stopping) return;
  answer.stopping = true;
  document.getElementById("stop").textContent = "Stopping …"; // not disabled, which would lose the focus
  setTimeout(() => answer.abort.abort(), STOP_MS);
  await askToStop(answer);
}

async function askToStop(answer) {
  try {
    const reply = await fetch(`/api/chat/sessions/${encodeURIComponent(sessionId())}/stop`, { method: "POST" });
    if (!reply.ok) answer.abort.abort();
  } catch {
    answer.abort.abort();
  }
}

// --- writing -------------------------------------------------------------------------------------------------

function draftKey() {
  return `draft:${chat.dataset.session}`;
}

function keepDraft(text = box.value) {
  if (text) inTab.set(draftKey(), text);
  else inTab.forget(draftKey());
}

function attach(files) {
  attached = files;
  const rows = attached.map((file) => {
    const row = element("li", "tag", file.name);
    const remove = button("×", () => {
      attach(attached.filter((other) => other !== file));
      document.getElementById("attach").focus();
    });
    remove.className = "quiet";
    remove.setAttribute("aria-label", `Remove ${file.name}`);
    row.append(remove);
    return row;
  });
  document.getElementById("files").replaceChildren(...rows);
}

// Return the problem of a text file, in words; null if none.
function unfit(file, text) {
  if (file.size > LARGEST_FILE) return `${file.name} is larger than 1 MB: upload it as a document under Sources.`;
  if (text.includes("\0") || text.includes("\ufffd")) return `${file.name} is not UTF-8 text: upload it as a document under Sources.`;
  return null;
}

async function readFiles(chosen) {
  for (const file of chosen) {
    const text = file.size > LARGEST_FILE ? "" : await file.text();
    const problem = attached.length < MOST_FILES ? unfit(file, text) : `At most ${MOST_FILES} files go with a message.`;
    if (problem) {
      toast(problem, { bad: true });
      continue;
    }
    attach([...attached, { name: file.name, text }]);
    if (file.size > TOLD_BYTES) toast(`The model receives the first 200 KB of ${file.name}.`);
  }
}

function written(message) {
  const [backend, model, worker] = JSON.parse(chosenModel() || "[null, null, null]");
  const project = chat.dataset.session ? "" : document.getElementById("project")?.value.trim();
  const body = { message };
  if (backend) Object.assign(body, { backend, model, worker_url: worker });
  if (project) body.project = project;
  if (attached.length) body.attachments = attached;
  return body;
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const message = box.value.trim();
  if (!message) return;
  if (running) return tellOnce("The answer before is still being written: stop it, or wait for it.");
  const body = written(message);
  box.value = "";
  keepDraft();
  attach([]);
  send(body);
});
box.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  form.requestSubmit();
});
box.addEventListener("input", () => keepDraft());
document.getElementById("stop").addEventListener("click", stop);
document.getElementById("attach").addEventListener("change", async (event) => {
  await readFiles([...event.target.files]);
  event.target.value = "";
});
form.addEventListener("dragover", (event) => event.preventDefault());
form.addEventListener("drop", (event) => {
  event.preventDefault();
  readFiles([...event.dataTransfer.files]);
});

// --- the rest of the page ------------------------------------------------------------------------------------

document.addEventListener("click", (event) => {
  if (event.target.closest("[data-close]")) event.target.closest("dialog").close();
  if (event.target.closest("[data-look-again]")) document.body.dispatchEvent(new CustomEvent("models"));
  const again = event.target.closest("[data-again]");
  if (!again || running) return;
  const failed = again.closest(".turn");
  const asked = failed.previousElementSibling;
  if (!asked?.matches(".user")) return toast("Its question is among the earlier messages: show those first.", { bad: true });
  askAgain(failed, asked);
});

// --- copying -------------------------------------------------------------------------------------------------

// Return an answer's Markdown; if the server does not send it, its displayed text.
async function asWritten(id) {
  try {
    const reply = await fetch(`/chat/messages/${encodeURIComponent(id)}/text`);
    if (reply.ok) return await reply.text();
  } catch {
    // the server's next message reports it
  }
  return document.getElementById(`said-${id}`).textContent;
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(await text);
    toast("Copied.");
  } catch {
    toast("The browser does not let this page copy.", { bad: true });
  }
}

// Add a button to each block of code.
function addCodeButtons() {
  for (const block of turns.querySelectorAll(".assistant .said pre")) {
    if (block.parentElement.matches(".code")) continue;
    const place = element("div", "code");
    block.replaceWith(place);
    const copier = button("Copy", () => copy((block.querySelector("code") ?? block).textContent));
    copier.className = "quiet";
    copier.setAttribute("aria-label", "Copy this code");
    place.append(block, copier);
  }
}
addCodeButtons();
document.addEventListener("htmx:afterSwap", addCodeButtons);
document.addEventListener("click", (event) => {
  const copier = event.target.closest("[data-copy-said]");
  if (copier) copy(asWritten(copier.dataset.copySaid));
});

let wasAtTheEnd = false;
document.addEventListener("htmx:beforeSwap", () => { wasAtTheEnd = isNearTheEnd(); });
document.addEventListener("htmx:afterSwap", (event) => {
  if (event.detail.target.id === "models" && wasAtTheEnd && turns.children.length) toTheEnd();
  if (event.detail.elt.id === "chat-head" && document.activeElement === document.body) document.getElementById("rename")?.focus();
});

function unfold() {
  sessions.open = isWide.matches;
  if (!isWide.matches) for (const each of document.querySelectorAll(".used")) each.open = false; // they would hide the answer
}
isWide.addEventListener("change", unfold);
unfold();

// Leaving the page ends an answer: block single-letter shortcuts, and confirm links.
window.addEventListener("beforeunload", (event) => {
  if (running) event.preventDefault();
});
window.addEventListener("keydown", (event) => {
  if (running && /^[a-z]$/i.test(event.key)) event.stopPropagation();
}, true);
box.value ||= inTab.get(draftKey()) ?? "";
if (turns.children.length) toTheEnd();
