// Decide: one page for the person who answers for it, from the verdict of the policy down to a signature.

import { html, useEffect, useState } from "../vendor/htm-preact.js";
import { download, post } from "./api.js";
import { Badge, Button, Card, Check, Command, DataPicker, Field, Lines, NoRelease, Note, Problem, Progress, Radio, Select, Term, Text, figure, go, useFacts, useJob, useReveal, verdictTone } from "./ui.js";

const TONES = { clear: "good", leak: "bad", doubt: "open" };

const Keys = ({ keys, value, onChange, onMade }) => {
  const [name, setName] = useState("holder.pem");
  const [passphrase, setPassphrase] = useState("");
  const [problem, setProblem] = useState("");
  const make = async () => {
    setProblem("");
    try {
      const made = await post("keys", { name, passphrase: passphrase || null });
      onMade(made.path);
    } catch (error) {
      setProblem(error.message);
    }
  };
  if (keys.length) return html`<${Select} label="Sign with the key" term="signature" value=${value} options=${keys} empty="Choose a key" onChange=${onChange} />`;
  return html`<fieldset><legend>There is no key in this folder yet. Make one:</legend>
    <div class="columns"><${Text} label="File of the private key" value=${name} onChange=${setName} autocomplete="username" hint="The public key, for receivers, ends in .pub." />
    <${Field} label="Passphrase" hint="Encrypts the key. Write it down: nobody can recover it. Leave it empty only on a computer that nobody else uses.">${(own) => html`<input ...${own} type="password" autocomplete="new-password" value=${passphrase} onInput=${(event) => setPassphrase(event.target.value)} />`}<//></div>
    <div><${Button} onClick=${make}>Make a key pair<//></div><${Problem}>${problem}<//></fieldset>`;
};

const Measure = ({ release, data, desk, onDone }) => {
  const [test, setTest] = useState(data ?? "");
  const run = useJob("evaluate", (args) => args.release === release);
  useEffect(() => {
    if (run.result) onDone();
  }, [run.result]);
  return html`<p>Its usefulness has not been measured.</p>
    <${DataPicker} label="Real records to test on" data=${desk.data} value=${test} onChange=${setTest} usual="test, or all" hint="Records that were not used: the part “test”." />
    <div class="row"><${Button} disabled=${!test} busy=${run.busy} onClick=${() => run.start({ release, test, train: data && data !== test ? data : test.includes("#") ? null : test })}>Measure it<//></div>
    <${Progress} run=${run} verb="Training and testing classifiers" /><${Problem}>${run.problem}<//>`;
};

const Settled = ({ facts, publicKey, signed }) => {
  useReveal("settled", signed);
  const { release } = facts;
  const [problem, setProblem] = useState("");
  const good = release.outcome === "approved";
  const name = `${release.path.split("/").pop()}.zip`;
  const fetchIt = () => download("zip", { release: release.path }, name).catch((error) => setProblem(error.message));
  return html`<${Card} title=${good ? "Approved and signed" : "Refused and signed"} tone=${good ? "good" : "bad"} id="settled">
    <p>${release.decision[0].toUpperCase() + release.decision.slice(1)}. Name and reason are in <code>${release.path}-decision.json</code>: do not send that file. The release holds only a salted hash of it.</p>
    ${good ? html`<div class="row"><${Button} kind="main" onClick=${fetchIt}>Download ${name}<//><small>Send only this file. Give the receiver your public key, <code>${publicKey}</code>, in another way, so that nobody can swap both.</small></div>` : html`<p>A refused release cannot be downloaded here.</p>`}
    ${release.outdated && html`<${Note} tone="bad">The attacks have been run again since: decide again before it leaves.<//>`}
    <${Problem}>${problem}<//>
    <details><summary>How a receiver checks it</summary><${Command}>${`locum verify ${release.path.split("/").pop()} --key ${publicKey.split("/").pop()}`}<//></details>
  <//>`;
};

export const Decide = ({ desk, parameters, refresh }) => {
  const [again, setAgain] = useState(0);
  const release = parameters.release ?? (desk.releases.length === 1 ? desk.releases[0] : "");
  const { value, error } = useFacts(release ? "release" : null, { path: release }, again);
  const facts = value ? { ...value.page, release: value } : null;
  const [checks, setChecks] = useState({});
  const [notes, setNotes] = useState({});
  const [outcome, setOutcome] = useState("");
  const [name, setName] = useState("");
  const [reason, setReason] = useState("");
  const [key, setKey] = useState(desk.keys[0] ?? "");
  const [keys, setKeys] = useState(desk.keys);
  const [passphrase, setPassphrase] = useState("");
  const [override, setOverride] = useState("");
  const [figures, setFigures] = useState(false);
  const [state, setState] = useState({});
  const [signed, setSigned] = useState(0);
  const against = facts?.verdict.state === "not met";
  const open = facts ? facts.safes.filter((safe) => !checks[safe.name]) : [];
  const missing = facts
    ? [!outcome && "the decision", ...(outcome === "approved" ? open.map((safe) => safe.title.toLowerCase()) : []), outcome === "approved" && against && !override.trim() && "why you approve against the policy", !name.trim() && "your name", !reason.trim() && "the reason", !key && "a key"].filter(Boolean)
    : [];
  const ready = outcome && name.trim() && reason.trim() && key && (outcome === "refused" || (!open.length && (!against || override.trim())));
  const sign = async () => {
    setState({ busy: true });
    try {
      await post("decide", {
        release, outcome, name: name.trim(), reason: reason.trim(), key, passphrase: passphrase || null, include_measured: figures,
        override: outcome === "approved" && against ? override.trim() : null, overwrite: Boolean(facts.release.outcome || facts.release.signature),
        checklist: Object.fromEntries(facts.safes.map((safe) => [safe.name, { ok: Boolean(checks[safe.name]), note: notes[safe.name] ?? "" }])),
      });
      setState({});
      setPassphrase("");
      // A second decision is begun afresh: the button must not ask for the first one again.
      setOutcome("");
      setChecks({});
      setReason("");
      setOverride("");
      setSigned((n) => n + 1);
      setAgain((n) => n + 1);
    } catch (failed) {
      setState({ problem: failed.message });
    }
  };
  return html`<header><h1>May it leave?</h1><p>Everything that matters about one release, on one page. The page does not decide: you do, and you sign it.</p></header>
  <div class="stack">
    ${!desk.releases.length ? html`<${NoRelease} />` : html`<${Select} label="Release" value=${release} options=${desk.releases} empty="Choose a release" onChange=${(chosen) => go("decide", { release: chosen })} />`}
    <${Problem}>${error}<//>
    ${facts && html`
      <${Card} tone=${TONES[facts.verdict.tone]}>
        <p class="verdict">${facts.verdict.title}</p><p>${facts.verdict.sentence}</p>
        ${facts.verdict.state === "open" && html`<div><${Button} kind="main" onClick=${() => go("attack", { release })}>Run the attacks<//></div>`}
        ${facts.verdict.rules.some((rule) => !rule.met) && html`<ul class="lines">${facts.verdict.rules.filter((rule) => !rule.met).map((rule) => html`<li><strong>Not met:</strong> ${rule.rule} (${rule.found}). ${rule.why}</li>`)}</ul>`}
        ${against && html`<p><a href=${`#/attack?${new URLSearchParams({ release })}`}>See the attacks</a>: if you can accept an assumption, or have more records, attack it again. Otherwise refuse it.</p>`}
      <//>
      <div class="halves"><div class="stack">
        <${Card} title="What is guaranteed" id="claim">
          <p><strong>${facts.claim.title}</strong></p><p>${facts.claim.sentence}</p>
          ${facts.claim.warning && html`<${Note} tone="bad">${facts.claim.warning}<//>`}
          ${facts.claim.assumptions?.length > 0 && html`<div><h3>It assumes</h3><${Lines} items=${facts.claim.assumptions} /></div>`}
          ${facts.limit && html`<p>${facts.limit} <${Term} name="proven limit">What is this?<//></p>`}
        <//>
        <${Card} title="The strongest attack" id="strongest">
          ${facts.strongest ? html`<p class="row"><strong>${facts.strongest.name}</strong><${Badge} tone=${verdictTone(facts.strongest.verdict)}>${facts.strongest.verdict}<//></p>
            <p class="muted">${facts.strongest.how}</p><p>${facts.strongest.words}</p>
            <p><a href=${`#/attack?${new URLSearchParams({ release })}`}>All ${facts.strongest.tried} attacks</a></p>` : html`<p class="muted">No attack was run.</p>`}
        <//>
        </div><div class="stack">
        <${Card} title="How much usefulness is lost" id="use">
          ${facts.usefulness ? html`<p>${facts.usefulness.words}</p><small>AUC ${figure(facts.usefulness.released)}${facts.usefulness.real ? `; from real data ${figure(facts.usefulness.real)}` : ""}, on ${facts.usefulness.records.toLocaleString("en-US")} records.</small>` : html`<${Measure} release=${release} data=${facts.release.made?.data} desk=${desk} onDone=${() => setAgain((n) => n + 1)} />`}
        <//>
        <${Card} title="What is not covered" id="uncovered"><${Lines} items=${facts.not_covered} empty="The claim names nothing." /><//>
      </div></div>
      ${facts.release.outcome && html`<${Settled} key=${`${signed} ${facts.release.outcome}`} facts=${facts} publicKey=${`${key || "holder.pem"}.pub`} signed=${signed > 0} />`}
      <${Card} title=${facts.release.outcome ? "Decide again" : "Your decision"} id="decision"><form class="form" onSubmit=${(event) => event.preventDefault()}>
        <div><h3><${Term} name="Five Safes">Five Safes<//>: check what you are sure of</h3>
        ${facts.safes.map((safe) => html`<div class="safe" key=${safe.name}>
          <${Check} label=${safe.title} hint=${safe.question} checked=${Boolean(checks[safe.name])} onChange=${(on) => setChecks({ ...checks, [safe.name]: on })} />
          <input class="remark" type="text" aria-label=${`Remark on ${safe.title}`} placeholder="Remark (stays here)" maxlength="300" autocomplete="off" value=${notes[safe.name] ?? ""} onInput=${(event) => setNotes({ ...notes, [safe.name]: event.target.value })} />
        </div>`)}</div>
        <fieldset><legend>Decision</legend><div class="row apart">
          <${Radio} name="outcome" label="Approve: it may leave" checked=${outcome === "approved"} onChange=${() => setOutcome("approved")} />
          <${Radio} name="outcome" label="Refuse: it stays" checked=${outcome === "refused"} onChange=${() => setOutcome("refused")} />
        </div></fieldset>
        ${outcome === "approved" && against && html`<${Text} label="Why you approve although the policy is not met" hint="This becomes part of the signature: every receiver reads it." value=${override} onChange=${setOverride} maxlength="500" autocomplete="off" />`}
        <div class="columns"><${Text} label="Your name" value=${name} onChange=${setName} autocomplete="name" hint="Stays here, in the file of the decision." />
        <${Text} label="Reason" value=${reason} onChange=${setReason} hint="Stays here too." maxlength="1000" autocomplete="off" /></div>
        <${Keys} keys=${keys} value=${key} onChange=${setKey} onMade=${(made) => { setKeys([made]); setKey(made); refresh(); }} />
        ${keys.length > 0 && html`<input type="text" hidden readonly autocomplete="username" value=${key} /><${Field} label="Passphrase of the key" hint="Empty if it has none. It is not kept.">${(own) => html`<input ...${own} type="password" autocomplete="current-password" value=${passphrase} onInput=${(event) => setPassphrase(event.target.value)} />`}<//>`}
        ${(facts.strongest || facts.usefulness) && html`<${Check} label="Put the measured figures into the passport, rounded" hint="They depend on records, and no guarantee covers them. Verdicts are there in any case." checked=${figures} onChange=${setFigures} />`}
        ${missing.length > 0 && html`<${Note} tone="open">Still open: ${missing.join(", ")}.<//>`}
        <div class="row"><${Button} kind=${outcome === "refused" ? "danger" : "main"} busy=${state.busy} disabled=${!ready} onClick=${sign}>${outcome === "refused" ? "Refuse and sign" : "Approve and sign"}<//></div>
        <${Problem}>${state.problem}<//>
      </form><//>`}
  </div>`;
};
