// An answer in progress: its text, sources and outcome.
"use strict";

const SILENT_S = 15; // seconds without output before the page says so
const STATES = { connected: "Searching your memory", waiting: "Waiting for the first word", generating: "Writing", complete: "Done" };

class Answer {
  constructor(question, body) {
    this.question = question;
    this.body = body;
    this.abort = new AbortController();
    this.failed = false;
    this.begun = false;
    this.stopping = false;
    this.root = element("li", "turn assistant");
    this.said = element("div", "said plain");
    this.text = document.createTextNode("");
    this.said.append(this.text);
    this.state = element("p", "state", "Searching your memory");
    this.used = element("details", "used");
    this.used.open = isWide.matches;
    this.used.hidden = true;
    this.root.append(element("h2", "visually-hidden", "Answer"), this.said, this.state, this.used);
    turns.append(this.root);
  }

  take(event) {
    const follows = isNearTheEnd();
    if (event.session) this.begin(event.session);
    if (event.citations) this.cite(event.citations);
    if (event.status) this.tell(event.status);
    if (event.token) this.text.appendData(event.token);
    if (event.error) this.fail(event.error);
    if (follows) toTheEnd();
  }

  begin(session) {
    this.begun = true;
    openSession(session);
    if (this.stopping) askToStop(this); // Stop was pressed before the message arrived
  }

  tell({ state, elapsed_s: seconds, tokens }) {
    if (`${state} ${tokens}` !== this.heard) [this.heard, this.heardAt] = [`${state} ${tokens}`, seconds];
    const written = tokens ? ` · ${tokens} token${tokens === 1 ? "" : "s"}` : "";
    const silent = Math.round(seconds - this.heardAt);
    const since = silent >= SILENT_S ? ` · nothing came for ${silent} s; Stop ends it, and another model can be asked` : "";
    this.state.textContent = `${STATES[state] ?? state} · ${Math.round(seconds)} s${written}${since}`;
  }

  cite(found) {
    const list = element("ol", "citations");
    list.append(...found.map(citation));
    const words = `${found.length} memor${found.length === 1 ? "y" : "ies"} found for the model`;
    this.used.replaceChildren(element("summary", "", words), list);
    this.used.hidden = !found.length;
    localTimes(list);
  }

  fail(told) {
    this.failed = true;
    this.root.querySelector(".problem")?.remove();
    const shown = element("div", "problem");
    const health = element("a", "", "Health");
    health.href = "/dashboard/health";
    shown.append(element("p", "", told), button("Try again", () => this.again()), " ", health);
    this.said.after(shown);
    this.said.hidden = !this.text.data;
    this.state.textContent = "";
    announce(`Not answered: ${told}`);
  }

  // This window can stop an answer started in another one.
  async refuse(reply) {
    this.fail(await reason(reply));
    if (reply.status !== 409) return;
    const other = await fetched(`/chat/${encodeURIComponent(sessionId())}/answer?known=true`);
    if (other?.status === 204) this.root.querySelector(".problem button").after(" ", button("Stop the other answer", stopOther));
  }

  again() {
    askAgain(this.root, this.question);
  }

  // Rendered as on the server, so that it looks the same after a reload.
  async finish({ message_id: id, stopped, seconds, problem }) {
    if (!this.failed) this.state.textContent = stopped ? "Stopped" : `${seconds.toFixed(1)} s`;
    if (problem) toast(problem, { bad: true });
    if (id) {
      const follows = isNearTheEnd();
      await this.become(`/chat/messages/${encodeURIComponent(id)}`);
      if (!isWide.matches) document.getElementById(`turn-${id}`)?.querySelector(".used")?.removeAttribute("open");
      if (follows) toTheEnd();
    }
    if (!this.failed) announce(stopped ? "The answer was stopped." : "The answer is there.");
    document.body.dispatchEvent(new CustomEvent("sessions"));
  }

  // The connection closed. The server stores the partial answer a moment later; poll for it until then.
  async leave() {
    this.state.textContent = "Stopped";
    announce("The answer was stopped.");
    if (this.begun) await this.become(`/chat/${encodeURIComponent(sessionId())}/answer`);
    document.body.dispatchEvent(new CustomEvent("sessions"));
  }

  // app.js reports errors; the text so far stays. Without a source one answer would wait for another.
  become(at) {
    return htmx.ajax("GET", at, { source: this.root, target: this.root, swap: "outerHTML" }).catch(() => null);
  }
}

async function stopOther({ target }) {
  const reply = await fetched(`/api/chat/sessions/${encodeURIComponent(sessionId())}/stop`, { method: "POST" });
  if (!reply?.ok) return reply && toast(await reason(reply), { bad: true });
  target.closest(".problem").querySelector("button").focus();
  target.remove();
  toast("The other answer is stopped.");
}

function citation(each) {
  const row = document.createElement("li");
  const link = element("a", "", each.summary);
  link.target = "_blank"; // leaving this page would end the answer
  link.href = `/dashboard/episodes/${each.episode_id.split("/").map(encodeURIComponent).join("/")}`;
  const time = element("time", "", each.timestamp);
  time.dateTime = each.timestamp;
  const about = element("span", "", `${each.project || "no project"} · `);
  about.append(time);
  if (each.standing) about.append(" · standing");
  row.append(link, " ", about);
  return row;
}
