// The desk: what lies below the root. Each row loads by itself.

import { html, useEffect, useState } from "../vendor/htm-preact.js";
import { get, post } from "./api.js";
import { Drop } from "./drop.js";
import { Badge, Budget, Button, Card, Problem, Scroll, count, megabytes, useFacts, verdictTone } from "./ui.js";

const DataRow = ({ path }) => {
  const { value, error } = useFacts("data", { path });
  return html`<tr>
    <td class="name"><strong>${path}</strong></td>
    <td>${error ? html`<${Problem}>${error}<//>` : value ? `${value.kind}, ${count(value.files, "file")}, ${megabytes(value.megabytes)}` : html`<span class="muted">reading…</span>`}</td>
    <td><div class="row"><a class="quiet" href=${`#/data?${new URLSearchParams({ path })}`}>Look at it</a><a class="quiet" href=${`#/make?${new URLSearchParams({ data: path })}`}>Make a release</a></div></td>
  </tr>`;
};

export const standing = (release) => {
  if (release.outcome === "approved") return ["good", "approved"];
  if (release.outcome === "refused") return ["bad", "refused"];
  if (!release.audit) return ["", "not attacked yet"];
  const proven = release.audit.policy?.rules.some((rule) => rule.proven);
  return release.audit.policy?.met ? ["", `policy met${proven ? " by proof" : ""}, not decided`] : ["bad", "policy not met"];
};

const ReleaseRow = ({ path }) => {
  const { value, error } = useFacts("release", { path });
  const link = (screen) => `#/${screen}?${new URLSearchParams({ release: path })}`;
  const [tone, words] = value ? standing(value) : ["", ""];
  return html`<tr>
    <td class="name"><strong>${path}</strong></td>
    <td>${error ? html`<${Problem}>${error}<//>` : value ? value.claim.title : html`<span class="muted">reading…</span>`}</td>
    <td>${value && html`${value.audit && html`<${Badge} tone=${verdictTone(value.audit.verdict)}>${value.audit.title.toLowerCase()}<//> `}<${Badge} tone=${tone}>${words}<//>`}</td>
    <td><div class="row"><a class="quiet" href=${link("attack")}>Attack</a><a class="quiet" href=${link("decide")}>Decide</a></div></td>
  </tr>`;
};

const LedgerRows = ({ path }) => {
  const { value, error } = useFacts("ledger", { path });
  const place = path.replace(/\/?\.locum\/ledger\.sqlite$/, "") || "this folder";
  if (error) return html`<tr><td class="name">${place}</td><td colspan="2"><${Problem}>${error}<//></td></tr>`;
  if (!value) return html`<tr><td class="name">${place}</td><td colspan="2" class="muted">reading…</td></tr>`;
  return value.holdings.map((holding) => html`<tr>
    <td class="name"><strong>${place}</strong></td><td>${holding.name}</td>
    <td><${Budget} holding=${holding} /><small>${count(holding.charges.length, "release")} paid for, per ${holding.unit}${value.looks ? `; ${count(value.looks, "look")} at the records ${value.looks === 1 ? "was" : "were"} noted` : ""}</small></td>
  </tr>`);
};

const JOB_TONES = { done: "good", failed: "bad", killed: "bad" };

export const Jobs = () => {
  const [jobs, setJobs] = useState(null);
  const [problem, setProblem] = useState("");
  const cancel = (job) => post(`jobs/${job}/cancel`).catch((error) => setProblem(error.message));
  useEffect(() => {
    let timer;
    let current = true;
    const look = async () => {
      try {
        const found = await get("jobs");
        if (current) setJobs(found);
      } catch (error) {
        if (current) setProblem(error.message);
      }
      if (current) timer = setTimeout(look, 1500);
    };
    look();
    return () => {
      current = false;
      clearTimeout(timer);
    };
  }, []);
  if (problem) return html`<${Problem}>${problem}<//>`;
  if (!jobs?.length) return html`<p class="muted">${jobs ? "No job has run yet." : "reading…"}</p>`;
  return html`<${Scroll} label="Jobs"><table class="listed"><thead><tr><th>Job</th><th>On</th><th>State</th><th><span class="muted">Cancel</span></th></tr></thead><tbody>
    ${jobs.slice(0, 8).map((job) => html`<tr key=${job.id}>
      <td>${job.title}</td><td class="name">${job.arguments.release ?? job.arguments.data ?? job.arguments.head ?? "made-up records"}</td>
      <td><${Badge} tone=${JOB_TONES[job.state] ?? ""}>${job.state}<//>${job.progress ? html` <small>${job.progress.note} ${job.progress.total > 1 ? `${job.progress.done} of ${job.progress.total}` : ""}</small>` : ""}${job.words && html`<br /><small>${job.words}</small>`}</td>
      <td>${["running", "waiting"].includes(job.state) && html`<${Button} kind="quiet" onClick=${() => cancel(job.id)}>Cancel<//>`}</td>
    </tr>`)}
  </tbody></table><//>`;
};

export const Desk = ({ desk, refresh }) => html`
  <header><h1>Desk</h1><p>The data sets and releases in this folder. To send one: look at the data, make a release, attack it, decide. Records stay here; only an approved release leaves.</p></header>
  <div class="stack">
    ${!desk.complete && html`<p class="note open">This folder holds more than the desk shows: open the studio on a smaller one.</p>`}
    <${Card} title="Data sets" id="data">
      ${desk.data.length ? html`<div class="scroll"><table class="listed"><thead><tr><th>Name</th><th>What</th><th>Next</th></tr></thead><tbody>${desk.data.map((path) => html`<${DataRow} key=${path} path=${path} />`)}</tbody></table></div>` : html`<p class="muted">There are none yet: drop a folder of images, with one folder per class, or a file of records (.npz, .csv, .parquet).</p>`}
      <${Drop} words="Drop a folder of images or a file of records here: it is copied into this folder, on this computer." end="keep" onDone=${refresh} />
    <//>
    <${Card} title="Releases" id="releases">
      ${desk.releases.length ? html`<div class="scroll"><table class="listed"><thead><tr><th>Name</th><th>Guarantee</th><th>Status</th><th>Next</th></tr></thead><tbody>${desk.releases.map((path) => html`<${ReleaseRow} key=${path} path=${path} />`)}</tbody></table></div>` : html`<p class="muted">There are none yet. Make one from a data set, or <a href="#/receive">receive one</a> that you were sent.</p>`}
    <//>
    <div class="columns">
      <${Card} title="Budgets" id="budgets">
        ${desk.ledgers.length ? html`<${Scroll} label="Budgets"><table class="listed"><thead><tr><th>Ledger of</th><th>Holding</th><th>Spent</th></tr></thead><tbody>${desk.ledgers.map((path) => html`<${LedgerRows} key=${path} path=${path} />`)}</tbody></table><//>` : html`<p class="muted">Nothing was spent yet. The first private release opens a budget.</p>`}
      <//>
      <${Card} title="Jobs" id="jobs"><${Jobs} /><//>
    </div>
  </div>`;
