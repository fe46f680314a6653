// Attack: one row per attack, in words; the proven bound above, canaries below; single records only on request.

import { html, useEffect, useState } from "../vendor/htm-preact.js";
import { Badge, Button, Card, Check, Command, DataPicker, Lines, NoRelease, Note, Problem, Progress, Scroll, Select, count, figure, go, number, upward, useFacts, useJob, verdictTone } from "./ui.js";

const WIDTH = 400;

// Attack, control and guess on one line from chance to certainty; the limit is a wall.
const Scale = ({ result }) => {
  const auc = result.measure === "auc";
  const low = auc ? 0.3 : 0;
  const at = (value) => 10 + ((Math.min(1, Math.max(low, value)) - low) / (1 - low)) * (WIDTH - 20);
  const bar = (estimate, y, filled) => html`
    <line x1=${at(estimate.low ?? estimate.value)} x2=${at(estimate.high ?? estimate.value)} y1=${y} y2=${y} stroke="var(--ink)" stroke-width="2" />
    <circle cx=${at(estimate.value)} cy=${y} r="4.5" fill=${filled ? "var(--ink)" : "var(--surface)"} stroke="var(--ink)" stroke-width="1.5" />`;
  const words = `${result.name}: attack ${figure(result.attack)}, control ${figure(result.control)}, guess ${number(result.baseline.value)}${result.limit ? `, proven limit ${upward(result.limit)}` : ""}`;
  return html`<svg viewBox=${`0 0 ${WIDTH} 46`} role="img" aria-label=${words} preserveAspectRatio="none">
    <line x1="10" x2=${WIDTH - 10} y1="34" y2="34" stroke="var(--line)" />
    <line x1=${at(result.baseline.value)} x2=${at(result.baseline.value)} y1="2" y2="34" stroke="var(--strong-line)" stroke-dasharray="3 3" />
    ${result.limit && html`<line x1=${at(result.limit)} x2=${at(result.limit)} y1="2" y2="34" stroke="var(--accent)" stroke-width="3" />`}
    ${bar(result.control, 25, false)}${bar(result.attack, 11, true)}
    ${[low, auc ? 0.5 : 0.5, 1].map((tick) => html`<text x=${at(tick)} y="45" font-size="10" fill="var(--muted)" text-anchor="middle">${tick}</text>`)}
  </svg>`;
};

const Row = ({ result }) => html`<div class="attack" role="listitem">
  <div><div class="row"><h3>${result.name}</h3><${Badge} tone=${verdictTone(result.verdict)}>${result.verdict}<//></div><p class="muted">${result.how}</p></div>
  <div><${Scale} result=${result} /></div>
  <div><p>${result.said}${["leak", "inconclusive"].includes(result.verdict) ? ` ${result.words}` : ""}</p>
    <small>${result.measure === "auc" ? "AUC" : "share"} ${figure(result.attack)}; control ${figure(result.control)}; guess ${number(result.baseline.value)}${result.p ? `; p, corrected ${result.p}` : ""}</small>
    ${result.notes.length > 0 && html`<details class="notes"><summary>${count(result.notes.length, "remark")}</summary>${result.notes.map((note) => html`<small>${note}</small>`)}</details>`}
  </div>
</div>`;

const Risk = ({ release }) => {
  const [asked, setAsked] = useState(false);
  const { value, error } = useFacts(asked ? "risk" : null, { release });
  if (!asked) return html`<p>A private file lists the records that stand out. It names rows and subjects of your data. <${Button} onClick=${() => setAsked(true)}>Show the most exposed records<//></p>`;
  if (!value) return html`<${Problem}>${error}<//>`;
  return html`<p>${value.exposed ? `${count(value.exposed, "record")} of ${value.records.toLocaleString("en-US")} are exposed beyond chance.` : `None of ${value.records.toLocaleString("en-US")} records is exposed beyond chance. That is not an all-clear.`} Leaving records out because of this list voids a guarantee.</p>
    <${Scroll} tall label="The most exposed records"><table><thead><tr><th class="number">Row</th><th>Subject</th><th>Class</th><th>Seen by</th><th class="number">Non-members as high</th><th>Exposed</th></tr></thead>
    <tbody>${value.rows.slice(0, 30).map((row) => html`<tr><td class="number">${row.row}</td><td>${row.subject || "–"}</td><td>${row.class}</td><td>${row.seen_by}</td><td class="number">${number(row.non_members_as_high, 4)}</td><td>${row.exposed}</td></tr>`)}</tbody></table><//>`;
};

const Verdict = ({ release, facts }) => html`
  <${Card} title=${facts.policy ? `Policy ${facts.policy.name}: ${facts.policy.met ? "met" : "NOT met"}` : facts.title} aside=${facts.policy && html`<${Badge} tone=${verdictTone(facts.verdict)}>${facts.title}<//>`} tone=${facts.policy && !facts.policy.met ? "bad" : verdictTone(facts.verdict)} id="found">
    <p>${facts.policy ? `${facts.title}. ` : ""}${facts.sentence}${facts.because ? ` Reason: ${facts.because}.` : ""} ${facts.consequence}</p>
    ${facts.failed.length > 0 && html`<ul class="lines">${facts.failed.map((one) => html`<li><strong>${one.rule}.</strong> ${one.words}</li>`)}</ul>`}
    ${facts.strongest && html`<p>${facts.strongest}</p>`}
    ${facts.limit && html`<p><strong>Proven upper limit:</strong> ${facts.limit.sentence}</p>`}
    ${facts.limit?.open_assumptions?.length > 0 && html`<${Note} tone="open">The limit proves nothing until these assumptions are accepted: ${facts.limit.open_assumptions.join("; ")}. If you know them to be true, check them below and attack again.<//>`}
    ${facts.epsilon_audit ? html`<p><strong>Tested lower limit:</strong> ${facts.epsilon_audit.words}</p>` : ""}
    ${facts.problems.map((one) => html`<${Note} tone="open">${one.words}: ${one.effect}.<//>`)}
    <div class="row"><${Button} kind="main" onClick=${() => go("decide", { release })}>Decide about it<//></div>
  <//>`;

const Evidence = ({ release, facts, risk }) => html`
  <${Card} title="Attacks" id="attacks" aside=${html`<small>● attack, ○ control (same attack between records that were not used), ┊ guess${facts.limit ? ", ┃ proven limit" : ""}</small>`}>
    <div role="list">${facts.results.map((result) => html`<${Row} key=${result.name} result=${result} />`)}</div>
    ${facts.skipped.length > 0 && html`<details><summary>${count(facts.skipped.length, "attack")} could not be run</summary><${Lines} items=${facts.skipped.map(([name, why]) => `${name}: ${why}`)} /></details>`}
  <//>
  ${facts.policy && html`<${Card} title=${`Rules of the policy ${facts.policy.name}`} id="rules"><ul class="lines">${facts.policy.rules.map((rule) => html`<li><strong>${rule.met ? "Met" : "Not met"}:</strong> ${rule.rule} (${rule.found})${rule.met ? "" : html`. ${rule.why}`}</li>`)}</ul><//>`}
  ${risk && html`<${Card} title="Single records" id="risk"><${Risk} release=${release} /><//>`}`;

export const Attack = ({ desk, parameters }) => {
  const [release, setRelease] = useState(parameters.release ?? (desk.releases.length === 1 ? desk.releases[0] : ""));
  const [again, setAgain] = useState(0);
  const about = useFacts(release ? "release" : null, { path: release }, again);
  const [members, setMembers] = useState("");
  const [others, setOthers] = useState("");
  const [policy, setPolicy] = useState("research-sharing");
  const [accepted, setAccepted] = useState([]);
  const [canaries, setCanaries] = useState(false);
  const run = useJob("audit", (args) => args.release === release);
  const facts = about.value;
  useEffect(() => {
    setAccepted([]);
    const near = desk.data.filter((path) => path.replace(/[^/]*$/, "") === release.replace(/[^/]*$/, ""));
    const guess = facts?.made?.data ?? (near.length === 1 ? near[0] : "");
    setMembers(guess);
    setOthers(guess.replace(/#.*$/, ""));
  }, [facts?.fingerprint]);
  useEffect(() => {
    if (run.result) setAgain((n) => n + 1);
  }, [run.result]);
  const held = useFacts(members ? "data" : null, { path: members.replace(/#.*$/, "") });
  const same = members !== "" && members === others && held.value?.parts?.length === 0;
  const body = { release, members, non_members: others, policy };
  const assumptions = facts?.claim.assumptions ?? [];
  if (facts?.ledger) Object.assign(body, { ledger: facts.ledger, accept: assumptions.filter((line) => accepted.includes(line)) });
  if (canaries) body.canaries = 1000;
  return html`<header><h1>Attack a release</h1><p>Attackers try to tell the records that were used from others of the same population. An attack that finds nothing proves nothing about a better one.</p></header>
  <div class="stack">
    ${facts?.audit && html`<${Verdict} release=${release} facts=${facts.audit} />`}
    <${Card} title="What to attack" id="what">${!desk.releases.length ? html`<${NoRelease} />` : html`<div class="form">
      <div class="columns">
        <${Select} label="Release" value=${release} options=${desk.releases} empty="Choose a release" onChange=${(chosen) => go("attack", { release: chosen })} />
        <${Select} label="Policy" term="policy" value=${policy} onChange=${setPolicy} options=${[["public", "public: anyone may get it"], ["research-sharing", "research-sharing: named researchers"], ["internal", "internal: stays in your institution"]]} />
      </div>
      <${Problem}>${about.error}<//>
      ${facts && html`
        <div class="columns">
          <${DataPicker} label="Records it was made from" data=${desk.data} value=${members} onChange=${setMembers} usual="train, or all" />
          <${DataPicker} label="Other records of the same population" data=${desk.data} value=${others} onChange=${setOthers} usual="val, or test" hint="Records that were not used: the part “val”, else “test”." />
        </div>
        ${same && html`<${Note} tone="open">This data set has no parts, so all its records were used. Choose another data set of the same population for the other records.<//>`}
        <p>${facts.claim.title}. ${facts.ledger ? "Its ledger is here, so attacks are compared with the proven limit." : facts.claim.dp ? "Its ledger is not in this folder, so the proven limit is not used." : ""}</p>
        ${facts.ledger && assumptions.length > 0 && html`<fieldset><legend>The guarantee assumes this. Accept what you know to be true:</legend>
          ${assumptions.map((line) => html`<${Check} key=${line} label=${line} checked=${accepted.includes(line)} onChange=${(on) => setAccepted(on ? [...accepted, line] : accepted.filter((one) => one !== line))} />`)}</fieldset>`}
        ${facts.claim.dp && html`<${Check} label="Also test the claimed epsilon with 1,000 canaries" hint="Invented records, in separate runs; no record is read." checked=${canaries} onChange=${setCanaries} />`}
        ${facts.ledger && assumptions.some((line) => !accepted.includes(line)) && html`<p class="muted">Unless you check these, the proven limit does not count, and the policy may not be met.</p>`}
        <div class="row"><${Button} kind="main" busy=${run.busy} disabled=${!members || !others || same} onClick=${() => run.start(body)}>${facts.audit ? "Attack again" : "Run the attacks"}<//><small>All quick attacks, and LiRA for at most five minutes.</small></div>
        <${Progress} run=${run} verb="Attacking" />
        <${Problem}>${run.problem}<//>
        ${run.job?.command && html`<details><summary>The same in a terminal</summary><${Command}>${run.job.command}<//></details>`}`}
    </div>`}<//>
    ${facts?.audit && html`<${Evidence} release=${release} facts=${facts.audit} risk=${facts.has_risk} />`}
  </div>`;
};
