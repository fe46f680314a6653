// Small parts that every screen uses.

import { html, useCallback, useContext, useEffect, useRef, useState, createContext } from "../vendor/htm-preact.js";
import { follow, get, post } from "./api.js";

export const Help = createContext(() => {});

// ---- words and numbers

export const number = (value, digits = 3) => (value === null || value === undefined ? "–" : Number(value).toFixed(digits));

export function figure(estimate, digits = 3) {
  if (!estimate) return "–";
  const { value, low, high } = estimate;
  if (low === null || high === null || low === undefined || low === high) return number(value, digits);
  return `${number(value, digits)} (${number(low, digits)} to ${number(high, digits)})`;
}

// A limit, rounded up: it must not look lower than it is.
export const upward = (value) => (Math.ceil(value * 1000 - 1e-9) / 1000).toFixed(3);

export function short(value) {
  if (value === 0) return "0";
  if (Math.abs(value) < 0.001) return Number(value).toExponential(0);
  return String(Number(Number(value).toPrecision(3)));
}

export const megabytes = (value) => (value < 0.1 ? `${Math.ceil(value * 1000)} kB` : `${value.toFixed(1)} MB`);

export const count = (n, one, many) => `${n.toLocaleString("en-US")} ${n === 1 ? one : many ?? `${one}s`}`;

// ---- state

export function useRoute() {
  const read = () => {
    const [path, query] = (location.hash.replace(/^#\/?/, "") || "desk").split("?");
    return { screen: path, parameters: Object.fromEntries(new URLSearchParams(query ?? "")) };
  };
  const [route, setRoute] = useState(read);
  useEffect(() => {
    const changed = () => setRoute(read());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}

export const go = (screen, parameters = {}) => {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value));
  location.hash = `#/${screen}${query.size ? `?${query}` : ""}`;
};

// What an address answers: loading, then a value or a sentence.
export function useFacts(path, parameters, again = 0) {
  const [facts, setFacts] = useState({});
  const asked = JSON.stringify([path, parameters, again]);
  useEffect(() => {
    if (!path) return setFacts({});
    let current = true;
    setFacts((old) => (old.asked === path ? { ...old, loading: true } : { loading: true }));
    get(path, parameters).then(
      (value) => current && setFacts({ value, asked: path }),
      (error) => current && setFacts({ error: error.message }),
    );
    return () => {
      current = false;
    };
  }, [asked]);
  return facts;
}

// A job of one kind: starts it, follows it, and finds it again after a reload.
export function useJob(kind, matches = () => true, onStep = () => {}) {
  const [job, setJob] = useState(null);
  const [problem, setProblem] = useState("");
  const stop = useRef(() => {});
  const attach = useCallback((found) => {
    stop.current();
    setJob(found);
    stop.current = follow(
      found.id,
      (event) => {
        if (event.kind === "progress") setJob((old) => ({ ...old, state: "running", progress: event }));
        if (event.kind === "started" || event.kind === "waiting")
          setJob((old) => ({ ...old, state: event.kind === "started" ? "running" : "waiting" }));
        if (event.kind === "step") onStep(event.step);
      },
      setJob,
    );
  }, []);
  useEffect(() => {
    get("jobs").then(
      (all) => {
        const found = all.find((one) => one.kind === kind && ["running", "waiting"].includes(one.state));
        if (found && matches(found.arguments)) attach(found);
      },
      () => {},
    );
    return () => stop.current();
  }, []);
  const start = async (args) => {
    setProblem("");
    setJob({ state: "starting", kind });
    try {
      attach(await post("jobs", { kind, arguments: args }));
    } catch (error) {
      setJob(null);
      setProblem(error.message);
    }
  };
  const cancel = async () => {
    try {
      if (job?.id) setJob(await post(`jobs/${job.id}/cancel`));
    } catch (error) {
      setProblem(error.message);
    }
  };
  const busy = job !== null && ["starting", "waiting", "running"].includes(job.state);
  const result = job?.state === "done" ? job.result : null;
  return { job, start, cancel, busy, result, problem: problem || (job?.state === "failed" || job?.state === "killed" ? job.words : "") };
}

// ---- parts

export const Term = ({ name, children }) => {
  const open = useContext(Help);
  return html`<button type="button" class="term" onClick=${() => open(name)}>${children ?? name}</button>`;
};

// Sentences of the program name options and files in backticks: here they are set as code.
export const coded = (text) => (typeof text === "string" ? text.split(/`([^`]*)`/).map((part, i) => (i % 2 ? html`<code>${part}</code>` : part)) : Array.isArray(text) ? text.map(coded) : text);

export const Problem = ({ children }) => (children ? html`<p class="problem" role="alert">${coded(children)}</p>` : null);

export const Note = ({ children, tone = "" }) => html`<p class=${`note ${tone}`}>${coded(children)}</p>`;

export const Card = ({ title, aside, children, tone = "", id }) => html`
  <section class=${`card ${tone}`} aria-labelledby=${id ? `${id}-title` : undefined}>
    ${title && html`<header><h2 id=${id ? `${id}-title` : undefined}>${title}</h2>${aside}</header>`}
    ${children}
  </section>`;

let numbered = 0;
export const Field = ({ label, hint, term, children }) => {
  const id = useRef(`field-${++numbered}`).current;
  const hintId = hint ? `${id}-hint` : undefined;
  return html`<div class="field">
    <span class="label"><label for=${id}>${label}</label>${term && html` <${Help.Consumer}>${(open) => html`<button type="button" class="what" aria-label=${`What is ${term}?`} onClick=${() => open(term)}>?</button>`}<//>`}</span>
    ${children({ id, "aria-describedby": hintId })}
    ${hint && html`<small id=${hintId}>${hint}</small>`}
  </div>`;
};

export const Text = ({ label, hint, term, value, onChange, ...rest }) => html`
  <${Field} label=${label} hint=${hint} term=${term}>${(own) => html`
    <input ...${own} type="text" value=${value} onInput=${(event) => onChange(event.target.value)} ...${rest} />`}<//>`;

export const Select = ({ label, hint, term, value, onChange, options, empty }) => html`
  <${Field} label=${label} hint=${hint} term=${term}>${(own) => html`
    <select ...${own} value=${value} onChange=${(event) => onChange(event.target.value)}>
      ${empty && html`<option value="">${empty}</option>`}
      ${options.map((option) => {
        const [key, words] = Array.isArray(option) ? option : [option, option];
        return html`<option value=${key} selected=${key === value}>${words}</option>`;
      })}
    </select>`}<//>`;

export const Check = ({ label, checked, onChange, hint, disabled }) => html`
  <label class="check"><input type="checkbox" checked=${checked} disabled=${disabled} onChange=${(event) => onChange(event.target.checked)} />
    <span>${label}${hint && html`<small>${hint}</small>`}</span></label>`;

export const Radio = ({ name, label, checked, onChange, hint }) => html`
  <label class="check"><input type="radio" name=${name} checked=${checked} onChange=${onChange} />
    <span>${label}${hint && html`<small>${hint}</small>`}</span></label>`;

export const Button = ({ children, kind = "", busy, ...rest }) => html`
  <button type="button" class=${`button ${kind}`} disabled=${busy || rest.disabled} ...${rest}>${busy ? html`<span class="spinner" aria-hidden="true"></span>` : null}${children}</button>`;

// A table that may be wider or longer than its place, without links to tab to: the keyboard can scroll it.
export const Scroll = ({ label, tall, children }) => html`<div class=${`scroll ${tall ? "tall" : ""}`} tabindex="0" role="group" aria-label=${label}>${children}</div>`;

export const Badge = ({ tone = "", children }) => html`<span class=${`badge ${tone}`}>${children}</span>`;

export const verdictTone = (verdict) =>
  ({ leak: "bad", inconclusive: "open", "within the proven limit": "good", "no excess risk found": "good" })[verdict] ?? "";

export const Command = ({ children }) => {
  const [copied, setCopied] = useState(false);
  const words = useRef(null);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(children);
      setCopied(true);
      setTimeout(() => setCopied(false), 1500);
    } catch {
      // Not allowed in this browser: the words are selected, for the usual keys.
      getSelection().selectAllChildren(words.current);
    }
  };
  return html`<div class="command"><code ref=${words} tabindex="0" role="group" aria-label="The same in a terminal">${children}</code>
    <button type="button" class="quiet" onClick=${copy}>${copied ? "Copied" : "Copy"}</button></div>`;
};

// What is spent of a budget; neither color nor length says that spending is good or bad.
export const Budget = ({ holding, asked = 0 }) => {
  const { budget, spent } = holding;
  const share = (value) => `${Math.min(100, (100 * value) / budget.epsilon)}%`;
  const words = `epsilon ${short(spent.epsilon)} of ${short(budget.epsilon)} is spent`;
  return html`<div class="budget">
    <div class="bar" role="img" aria-label=${words}>
      <span class="spent" style=${{ width: share(spent.epsilon) }}></span>
      ${asked > 0 && html`<span class="asked" style=${{ width: share(asked), left: share(spent.epsilon) }}></span>`}
    </div>
    <small>${words}${asked > 0 ? `; this asks for ${short(asked)}` : ""}</small>
  </div>`;
};

export const Progress = ({ run, verb = "Working" }) => {
  const { job, cancel, busy } = run;
  if (!busy) return null;
  const at = job.progress;
  const words = job.state === "waiting" ? "Waiting for another job to end" : at?.note || verb;
  return html`<div class="progress" role="status">
    <progress max=${at?.total || 1} value=${at && at.total > 1 ? at.done : undefined} aria-label=${words}></progress>
    <span>${words}${at && at.total > 1 ? `: ${at.done} of ${at.total}` : "…"}</span>
    ${job.id && html`<${Button} kind="quiet" onClick=${cancel}>Cancel<//>`}
  </div>`;
};

export const NoData = () => html`<p class="note">There are no data in this folder yet. <a href="#/desk">Drop some on the desk</a> first.</p>`;

export const NoRelease = () => html`<p class="note">There is no release in this folder yet. <a href="#/make">Make one</a>, or <a href="#/receive">receive one</a>.</p>`;

export const SPLITS = [["#train", "train"], ["#val", "validation"], ["#test", "test"]];

// What has just appeared may lie outside the window: it is brought into view, by the id of its card.
export const useReveal = (id, when = true) =>
  useEffect(() => {
    if (when) document.getElementById(`${id}-title`)?.closest("section").scrollIntoView({ block: "nearest" });
  }, [when]);

// A data set and, if it has several, one of its parts; `usual` says which is taken if none is named.
export const DataPicker = ({ label, hint, data, value, onChange, usual = "usual" }) => {
  const at = value.lastIndexOf("#");
  const [path, split] = at > 0 ? [value.slice(0, at), value.slice(at)] : [value, ""];
  if (!data.length) return html`<${NoData} />`;
  return html`<div class="pair">
    <${Select} label=${label} hint=${hint} value=${path} options=${data} empty="Choose a data set" onChange=${(chosen) => onChange(chosen && chosen + split)} />
    <${Select} label="Part" value=${split} options=${[["", usual], ...SPLITS]} onChange=${(chosen) => onChange(path + chosen)} />
  </div>`;
};

export const Lines = ({ items, empty }) =>
  items?.length ? html`<ul class="lines">${items.map((item) => html`<li>${coded(item)}</li>`)}</ul>` : html`<p class="muted">${empty}</p>`;
