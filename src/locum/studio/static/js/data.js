// Data: what the holder has, and what of it a release would make public.

import { html, useEffect, useState } from "../vendor/htm-preact.js";
import { get } from "./api.js";
import { Button, Card, DataPicker, Lines, Note, Problem, Progress, Scroll, count, go, megabytes, short, useJob } from "./ui.js";

const Facts = ({ survey }) => {
  const sizes = survey.image_sizes.map((one) => `${one.width} × ${one.height}`).slice(0, 3).join(", ");
  const { subjects, unreadable, duplicates } = survey;
  const parts = Object.entries(survey.splits);
  return html`<dl class="facts">
    <dt>Kind</dt><dd>${survey.kind}, ${megabytes(survey.megabytes)}</dd>
    <dt>Records</dt><dd>${survey.records.toLocaleString("en-US")}${parts.length > 1 ? `: ${parts.map(([name, n]) => `${name} ${n.toLocaleString("en-US")}`).join(", ")}` : ""}</dd>
    ${survey.features && html`<dt>Features</dt><dd>${survey.features}${survey.backbone ? `, by ${survey.backbone}` : ""}</dd>`}
    ${sizes && html`<dt>Image sizes</dt><dd>${sizes}${survey.different_sizes > 3 ? ` and ${survey.different_sizes - 3} more` : ""}</dd>`}
    <dt>Subjects</dt><dd>${subjects ? `${subjects.count.toLocaleString("en-US")}, with a median of ${subjects.median} records and at most ${subjects.most}${subjects.in_several_splits ? `; ${subjects.in_several_splits} are in several parts` : ""}` : "not known: a guarantee would cover single records"}</dd>
    ${survey.attributes.length > 0 && html`<dt>Attributes</dt><dd>${survey.attributes.map((one) => `${one.name} (${one.values})`).join(", ")}</dd>`}
    <dt>Unreadable</dt><dd>${unreadable.count ? html`${count(unreadable.count, "file")}: ${Object.entries(unreadable.reasons).map(([why, n]) => `${why} (${n})`).join("; ")}${unreadable.file && html`; listed in <code>${unreadable.file}</code>`}` : "none"}${survey.unchecked ? `; ${survey.unchecked} were not checked` : ""}</dd>
    <dt>Duplicates</dt><dd>${duplicates.within || duplicates.between ? html`${duplicates.within} within a part, ${duplicates.between} between parts${duplicates.other_label ? `, ${duplicates.other_label} with another label` : ""}${duplicates.file && html`; listed in <code>${duplicates.file}</code>`}` : "none"}</dd>
    <dt>Budget</dt><dd>${survey.ledger?.exists ? survey.ledger.holdings.map((one) => `${one.name}: ${one.left.epsilon < 1e-4 ? "nothing" : `epsilon ${short(one.left.epsilon)}`} of ${short(one.budget.epsilon)} is left`).join("; ") : "nothing was spent yet"}</dd>
  </dl>`;
};

export const Data = ({ desk, parameters }) => {
  const [path, setPath] = useState(parameters.path ?? (desk.data.length === 1 ? desk.data[0] : ""));
  const [seen, setSeen] = useState(null);
  const run = useJob("survey", (args) => args.data === path);
  useEffect(() => {
    setSeen(null);
    if (!path) return;
    // A look from before is shown at once; it may be out of date, and can be taken again.
    get("jobs").then(async (jobs) => {
      const found = jobs.find((job) => job.kind === "survey" && job.state === "done" && job.arguments.data === path);
      if (found) setSeen((await get(`jobs/${found.id}`)).result);
      else run.start({ data: path });
    }, () => {});
  }, [path]);
  useEffect(() => {
    if (run.result) setSeen(run.result);
  }, [run.result]);
  const most = seen ? Math.max(1, ...seen.classes.map((one) => one.records)) : 1;
  return html`<header><h1>Data</h1><p>What you hold, before you make anything from it. Nothing on this screen leaves this computer.</p></header>
  <div class="stack">
    <${Card}><div class="form">
      <${DataPicker} label="Data set" data=${desk.data} value=${path} usual="all" onChange=${(chosen) => go("data", { path: chosen })} />
      ${desk.data.length > 0 && html`<div class="row"><${Button} disabled=${!path} busy=${run.busy} onClick=${() => run.start({ data: path })}>Look again<//>${path && html`<${Button} kind="main" onClick=${() => go("make", { data: path })}>Make a release from it<//>`}</div>`}
      <${Progress} run=${run} verb="Looking at every record" /><${Problem}>${run.problem}<//>
    </div><//>
    ${seen && html`
      ${seen.refused.map((words) => html`<${Note} tone="bad">A private release would be refused: ${words}<//>`)}
      ${seen.problems.map((words) => html`<${Note} tone="open">${words}<//>`)}
      <div class="masonry">
        <${Card} title="At a glance" id="facts"><${Facts} survey=${seen} /><//>
        <${Card} title=${count(seen.classes.length, "class", "classes")} id="classes"><${Scroll} tall label="Classes"><table><thead><tr><th>Class</th><th class="number">Records</th>${seen.subjects && html`<th class="number">Subjects</th>`}<th>Share</th></tr></thead><tbody>
          ${seen.classes.slice(0, 60).map((one) => html`<tr><td class="name">${one.name}</td><td class="number">${one.records.toLocaleString("en-US")}</td>${seen.subjects && html`<td class="number">${one.subjects?.toLocaleString("en-US") ?? "–"}</td>`}<td class="middle"><div class="bar" aria-hidden="true"><span class="spent" style=${{ width: `${(100 * one.records) / most}%` }}></span></div></td></tr>`)}
        </tbody></table><//>${seen.classes.length > 60 && html`<small>and ${seen.classes.length - 60} more</small>`}<//>
        <${Card} title="A private release makes public" id="public"><${Lines} items=${seen.public} empty="These data cannot be released as they are." /><//>
        <${Card} title="It keeps private" id="private"><${Lines} items=${seen.private} empty="" /><//>
      </div>`}
  </div>`;
};
