// Receive: a release from somebody else, checked before it is used; then samples, a classifier, predictions.

import { html, useEffect, useState } from "../vendor/htm-preact.js";
import { Drop } from "./drop.js";
import { Legend, Map } from "./map.js";
import { Badge, Button, Card, Command, DataPicker, Lines, Note, Problem, Progress, Select, figure, go, useFacts, useJob } from "./ui.js";

const Signature = ({ release, publics }) => {
  const [key, setKey] = useState("");
  const { value, error } = useFacts(key ? "verify" : null, { release, key });
  return html`<${Select} label="The sender's public key" hint="Ask for it over another channel, and put it in this folder as a file that ends in .pub." value=${key} options=${publics} empty="Not checked" onChange=${setKey} />
    ${value && html`<${Note} tone="good">Signed with this key: ${value.signed_by.slice(0, 16)}… The release is exactly what its owner signed.<//>`}
    <${Problem}>${error}<//>`;
};

const FEW = 12;
const Names = ({ names }) => (names.length <= FEW ? names.join(", ") : html`<details class="notes"><summary>${names.length}: ${names.slice(0, 3).join(", ")} and more</summary>${names.join(", ")}</details>`);

const Samples = ({ release }) => {
  const run = useJob("map", (args) => args.release === release);
  const map = run.result?.map;
  return html`<${Button} busy=${run.busy} onClick=${() => run.start({ release })}>Draw samples<//>
    <${Progress} run=${run} verb="Drawing" /><${Problem}>${run.problem}<//>
    ${run.result && !map && html`<p class="muted">${run.result.missing.map.why}</p>`}
    ${map && html`<${Map} points=${map.panels.at(-1).points.map(([x, y, c]) => [x, y, Math.max(0, c)])} label=${`Samples of ${release} on a map`} bounds=${[0, 1, 0, 1]} /><${Legend} classes=${map.classes} /><small>${map.method}; no real record is shown. The page is kept as a report beside the release.</small>`}`;
};

const Classifier = ({ release, head, data, onTrained }) => {
  const train = useJob("train", (args) => args.release === release);
  const predict = useJob("predict", (args) => args.head === head);
  const [records, setRecords] = useState("");
  useEffect(() => {
    if (train.result) onTrained();
  }, [train.result]);
  const scores = predict.result?.scores;
  return html`
    ${head ? html`<p>A classifier is in <code>${head}</code>.</p>` : html`<p>A classifier is made from the release alone.</p>`}
    <div class="row"><${Button} kind=${head ? "" : "main"} busy=${train.busy} onClick=${() => train.start({ release })}>${head ? "Train again" : "Train a classifier"}<//></div>
    <${Progress} run=${train} verb="Training" /><${Problem}>${train.problem}<//>
    ${head && html`<div class="form"><${DataPicker} label="Your own records to classify" data=${data} value=${records} onChange=${setRecords} hint="Images are embedded as the release specifies." />
      <div class="row"><${Button} kind="main" disabled=${!records} busy=${predict.busy} onClick=${() => predict.start({ head, data: records })}>Predict<//></div>
      <${Progress} run=${predict} verb="Predicting" /><${Problem}>${predict.problem}<//>
      ${predict.result && html`<${Note} tone="good">Predictions are in ${predict.result.out}.${scores?.accuracy ? ` Against the labels in the data: accuracy ${figure(scores.accuracy)}${scores.auc ? `, AUC ${figure(scores.auc)}` : ""}.` : ""}<//>`}</div>`}`;
};

export const Receive = ({ desk, parameters, refresh }) => {
  const [again, setAgain] = useState(0);
  const release = parameters.release ?? "";
  const { value: facts, error } = useFacts(release ? "release" : null, { path: release }, again);
  return html`<header><h1>Receive a release</h1><p>Drop what you were sent. It is checked as if it were hostile, and nothing in it is run.</p></header>
  <div class="stack">
    <${Card}>
      <${Drop} words="Drop the folder or the .zip of a release here." end="receive" onDone=${(found) => { refresh(); go("receive", { release: found.path }); }} />
      ${desk.releases.length > 0 && html`<${Select} label="Or open one that is here" value=${release} options=${desk.releases} empty="Choose a release" onChange=${(chosen) => go("receive", { release: chosen })} />`}
    <//>
    <${Problem}>${error}<//>
    ${facts && html`
      <div class="halves"><div class="stack">
        <${Card} title=${facts.outcome === "refused" ? "Complete, but refused" : facts.refused ? "Complete, but its policy is not met" : "Complete and unchanged"} tone=${facts.refused ? "bad" : "good"} id="checked">
          <p><strong>${facts.claim.title}</strong></p><p>${facts.claim.sentence}</p>
          ${facts.claim.warning && html`<${Note} tone="bad">${facts.claim.warning}<//>`}
          <p><${Badge} tone=${facts.outcome === "approved" ? "good" : facts.outcome === "refused" ? "bad" : "open"}>${facts.decision}<//></p>
          ${facts.override && html`<${Note} tone="bad">Signed although the policy was not met, because: ${facts.override}<//>`}
          <details><summary>${facts.checks.length} checks passed</summary><${Lines} items=${facts.checks} /></details>
          <div><h3>Not checked</h3><${Lines} items=${facts.not_checked.map((line) => line.replace("give the sender's public key with --key", "choose the sender's public key at “Who sent it?”"))} empty="Nothing was left out." /></div>
          <dl class="facts"><dt>Classes</dt><dd><${Names} names=${facts.classes} /></dd><dt>Vectors</dt><dd>${facts.features} numbers each; no picture comes out</dd><dt>Fingerprint</dt><dd><code>${facts.fingerprint}</code></dd></dl>
          <${Command}>${`locum verify ${facts.path}`}<//>
        <//>
        <${Card} title="Who sent it?" id="signature"><${Signature} release=${facts.path} publics=${desk.publics} /><//>
        </div><div class="stack">
        <${Card} title="What samples look like" id="samples"><${Samples} release=${facts.path} /><//>
        <${Card} title="Use it" id="train"><${Classifier} release=${facts.path} head=${facts.head} data=${desk.data} onTrained=${() => setAgain((n) => n + 1)} /><//>
        <${Card} title="What it does not protect" id="uncovered"><${Lines} items=${facts.claim.not_covered} empty="The claim names nothing." /><//>
      </div></div>`}
  </div>`;
};
