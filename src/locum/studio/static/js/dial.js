// The dial: turn epsilon, and see the map, the usefulness and the attacker's limit move.

import { html, useEffect, useMemo, useRef, useState } from "../vendor/htm-preact.js";
import { get } from "./api.js";
import { Chart, between, mixed, mixedPoints } from "./chart.js";
import { Legend, Map, boundsOf } from "./map.js";
import { Obfuscation } from "./obfuscation.js";
import { Button, Card, DataPicker, Note, Problem, Progress, Radio, Select, Term, Text, figure, go, number, short, upward, useFacts, useJob } from "./ui.js";

const [LEAST, MOST, STEPS] = [0.1, 10, 400];
const toEpsilon = (place) => Number((LEAST * (MOST / LEAST) ** (place / STEPS)).toPrecision(2));
const toPlace = (epsilon) => Math.round((STEPS * Math.log(Math.min(MOST, Math.max(LEAST, epsilon)) / LEAST)) / Math.log(MOST / LEAST));

// The next number with two digits, for the keyboard: one press, one change.
const nextEpsilon = (epsilon, up) => {
  const unit = 10 ** (Math.floor(Math.log10(epsilon) + 1e-9) - 1);
  const step = !up && Math.abs(epsilon / unit - 10) < 0.05 ? unit / 10 : unit;
  return Math.min(MOST, Math.max(LEAST, Number((epsilon + (up ? step : -step)).toPrecision(2))));
};

const PUBLIC = "Made-up records with the numbers you typed. None of your records is read, so nothing you choose here is tuned on them.";

// Steps as they arrive from the job, or all at once from a result that is there already.
function usePreview(body, manual) {
  const [base, setBase] = useState(null);
  const [steps, setSteps] = useState([]);
  const asked = JSON.stringify(body);
  const current = useRef(asked);
  const key = body.knob === "k" ? "k" : "epsilon";
  const sorted = (list) => [...list].sort((a, b) => a[key] - b[key]);
  const run = useJob("preview", () => false, (event) => {
    if (event.base) setBase(event.base);
    else setSteps((old) => sorted([...old.filter((step) => step[key] !== event[key]), event]));
  });
  const take = (result) => {
    setBase(result);
    setSteps(sorted(result.steps));
  };
  const start = async () => {
    current.current = asked;
    setBase(null);
    setSteps([]);
    try {
      const same = (args) => Object.entries(body).every(([name, value]) => JSON.stringify(args[name]) === JSON.stringify(value));
      // The same preview may be there from before. One on records is noted in the ledger each time, so it is asked for.
      const found = manual ? null : (await get("jobs")).find((job) => job.kind === "preview" && job.state === "done" && same(job.arguments));
      if (found) return take((await get(`jobs/${found.id}`)).result);
    } catch {
      // Whatever keeps the jobs from being read keeps one from being started, and that is told.
    }
    return run.start(body);
  };
  useEffect(() => {
    if (run.result) take(run.result);
  }, [run.result]);
  useEffect(() => {
    if (manual) {
      setBase(null);
      setSteps([]);
      return undefined;
    }
    const timer = setTimeout(start, 400);
    return () => clearTimeout(timer);
  }, [asked, manual]);
  return { base, steps, run, start, stale: current.current !== asked };
}

const Views = ({ base, steps, name, at, curve, limits, dots, attacks, mode, auc, limitWords, knob }) => {
  const [settled, setSettled] = useState(at);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(at), 60);
    return () => clearTimeout(timer);
  }, [at]);
  const bounds = useMemo(() => (base ? boundsOf([base.real.points, base.real.means, ...steps.map((step) => step.points)]) : null), [base, steps]);
  const [a, b, t] = steps.length ? between(steps, at, knob) : [];
  const same = a && a.points.length === b.points.length;
  const means = a?.means ? mixedPoints(a.means, b.means, t) : [];
  const points = useMemo(() => {
    if (!steps.length) return [];
    const [c, d, u] = between(steps, settled, knob);
    return c.points.length === d.points.length && knob === "epsilon" ? mixedPoints(c.points, d.points, u) : u < 0.5 ? c.points : d.points;
  }, [settled, steps]);
  return html`<div class="views">
    <${Card} title="Map" id="map" aside=${html`<small>${mode === "records" ? "your records" : "made-up records"}: gray rings; samples: colored</small>`} tone=${mode === "records" ? "eyes" : ""}>
      ${base ? html`<${Map} points=${points} means=${same ? means : []} behind=${base.real.points} bounds=${bounds} shown=${at} settled=${settled} label=${`Map of samples at ${name}: ${base.classes.length} classes`} /><${Legend} classes=${base.classes} />` : html`<p class="muted">The map appears when the first setting is computed.</p>`}
    <//>
    <${Card} title="Usefulness" id="use">
      <p class="headline">${auc}</p>
      <${Chart} curve=${curve.curve} dots=${dots} levels=${curve.levels} at=${at} from=${0.45} to=${1.005} axis=${name.split(" ")[0]} logarithmic=${knob === "epsilon"} label=${`Expected AUC over ${knob}; now ${auc}`} />
      <small>${curve.words}</small>
    <//>
    <${Card} title="Attacker's limit" id="limit">
      <p class="headline">${limitWords}</p>
      <${Chart} curve=${limits.curve} dots=${attacks} levels=${limits.levels} at=${at} from=${limits.from} to=${limits.to} axis=${name.split(" ")[0]} logarithmic=${knob === "epsilon"} label=${`Limit of attacks over ${knob}; now ${limitWords}`} />
      <small>${limits.words}</small>
    <//>
  </div>`;
};

const Epsilon = ({ desk, parameters, numbers, mode, data }) => {
  const [epsilon, setEpsilon] = useState(Number(parameters.epsilon) || 1);
  const [delta, setDelta] = useState(parameters.delta ?? "1e-6");
  const [unit, setUnit] = useState("record");
  const [want, setWant] = useState("");
  const [solved, setSolved] = useState("");
  const [asked, setAsked] = useState(null);
  // What was measured on records belongs to the mode that admits to looking at them.
  const measured = useFacts(mode === "records" ? "measured" : null);
  const { units, classes, features, realAuc } = numbers;
  const names = classes.names;
  const public_ = { units, classes: names.length, features, real_auc: realAuc, delta };
  const curves = useFacts(asked && "curves", asked ?? {});
  useEffect(() => {
    const timer = setTimeout(() => setAsked(public_), 120);
    return () => clearTimeout(timer);
  }, [JSON.stringify(public_)]);
  const records = mode === "records";
  const body = records ? { knob: "epsilon", mode, data, delta: Number(delta), unit: "auto" } : { knob: "epsilon", mode, units, classes: names, features, real_auc: realAuc, delta: Number(delta), unit };
  const preview = usePreview(body, records);
  const { base, steps, run } = preview;
  const table = curves.value?.steps;
  const drawn = useMemo(() => {
    if (!table) return null;
    const x = table.map((step) => step.epsilon);
    return {
      use: { x, y: table.map((s) => s.auc.value), low: table.map((s) => s.auc.low), high: table.map((s) => s.auc.high) },
      limit: { x, y: table.map((s) => s.limit) },
    };
  }, [table]);
  // On records the curve is what was measured on them, not a forecast.
  const own = useMemo(() => {
    const known = steps.filter((step) => step.auc);
    return records && known.length > 1 ? { x: known.map((s) => s.epsilon), y: known.map((s) => s.auc.value), low: known.map((s) => s.auc.low), high: known.map((s) => s.auc.high) } : null;
  }, [steps, records]);
  const press = (event) => {
    const up = { ArrowRight: true, ArrowUp: true, ArrowLeft: false, ArrowDown: false }[event.key];
    if (up === undefined) return;
    event.preventDefault();
    setEpsilon((old) => nextEpsilon(old, up));
  };
  const solve = async () => {
    setSolved("");
    try {
      const found = await get("epsilon", { ...public_, want_auc: want });
      setEpsilon(Math.min(MOST, Math.max(LEAST, found.epsilon)));
      setSolved(`Epsilon ${short(found.epsilon)} is expected to give an AUC of ${figure(found.auc)}.`);
    } catch (error) {
      setSolved(error.message);
    }
  };
  let [auc, limit] = ["…", "…"];
  if (table) {
    const [a, b, t] = between(table, epsilon, "epsilon");
    const mix = (part) => mixed(a.auc[part], b.auc[part], t);
    auc = `AUC about ${number(mix("value"), 2)} (${number(mix("low"), 2)} to ${number(mix("high"), 2)})`;
    // That of the next larger epsilon: a value in between could be too low.
    limit = `AUC at most ${upward(t === 0 ? a.limit : b.limit)}`;
  }
  if (records && own) {
    const [a, b, t] = between(steps, epsilon, "epsilon");
    auc = `AUC ${number(mixed(a.auc.value, b.auc.value, t), 2)}, measured on your records`;
  }
  const realLine = records ? base?.real_auc?.value : realAuc;
  const attacks = [...steps.filter((step) => step.attack).map((step) => ({ x: step.epsilon, ...step.attack })), ...(measured.value ?? []).filter((one) => one.epsilon && one.attack).map((one) => ({ x: one.epsilon, ...one.attack }))];
  const dots = (measured.value ?? []).filter((one) => one.epsilon && one.auc && one.classes === base?.classes.length && one.features === base?.features).map((one) => ({ x: one.epsilon, ...one.auc }));
  return html`
    <${Card} tone=${records ? "eyes" : ""}>
      ${records && html`<${Note} tone="bad">For your eyes only: this reads your records. Each preview is noted in the ledger, and a release made afterwards says that its settings were chosen after previews on the records. <${Term} name="look">Why?<//><//>`}
      <div class="dial">
        <div class="row between"><output for="epsilon">epsilon ${short(epsilon)}</output>
          <div class="row"><${Button} kind="main" onClick=${() => go("make", { epsilon: String(epsilon), delta, unit: !records && unit === "subject" ? unit : "", data: data || parameters.data })}>Make a release with this<//></div></div>
        <input id="epsilon" type="range" aria-label="Epsilon" min="0" max=${STEPS} value=${toPlace(epsilon)} aria-valuetext=${`epsilon ${short(epsilon)}`} onKeyDown=${press} onInput=${(event) => setEpsilon(toEpsilon(Number(event.target.value)))} />
        <div class="ends"><span>more private</span><span>more accurate</span></div>
      </div>
      <div class="columns small">
        <${Text} label="Delta" term="delta" value=${delta} onChange=${setDelta} inputmode="decimal" />
        ${!records && html`<${Select} label="Unit" term="unit" value=${unit} onChange=${setUnit} options=${[["record", "one record"], ["subject", "one subject"]]} />`}
        <${Text} label="I need an AUC of at least" value=${want} onChange=${setWant} inputmode="decimal" placeholder="0.9" />
        <div class="field end"><${Button} disabled=${!want} onClick=${solve}>Find epsilon<//></div>
      </div>
      ${solved && html`<p role="status">${solved}</p>`}
      <${Problem}>${curves.error}<//>
      ${records && html`<div class="row"><${Button} disabled=${!data} busy=${run.busy} onClick=${preview.start}>Look at my records, and note it<//></div>`}
      <${Progress} run=${run} verb="Computing a dozen settings" /><${Problem}>${run.problem}<//>
    <//>
    ${drawn && html`<${Views} base=${base} steps=${steps} knob="epsilon" name=${`epsilon ${short(epsilon)}`} at=${epsilon} mode=${mode} auc=${auc} limitWords=${limit}
      curve=${{ curve: own ?? drawn.use, levels: realLine ? [{ y: realLine, words: "real data" }] : [], words: records ? "Measured on records that these previews did not use; the band is a 95% interval. Dots: releases of such data in this folder." : "A forecast from releases of other data; the band is where those lay." }}
      limits=${{ curve: drawn.limit, levels: [{ y: 0.5, words: "a coin flip" }], from: 0.45, to: 1.005, words: `The line is proven: averaged over the noise, no attack gets above it; a single one can, by chance. Dots: attacks on the previews${records ? " and on releases here" : ""}, with 95% intervals.` }}
      dots=${dots} attacks=${attacks} />`}`;
};

const Groups = ({ parameters, numbers, mode, data }) => {
  const [k, setK] = useState(Number(parameters.k) || 5);
  const records = mode === "records";
  const { units, classes, features, realAuc } = numbers;
  const body = records ? { knob: "k", mode, data } : { knob: "k", mode, units, classes: classes.names, features, real_auc: realAuc };
  const preview = usePreview(body, records);
  const { base, steps, run } = preview;
  const ks = steps.map((step) => step.k);
  const at = ks.includes(k) ? k : (ks[0] ?? k);
  const here = steps.find((step) => step.k === at);
  const drawn = useMemo(() => {
    const known = steps.filter((step) => step.auc);
    return known.length > 1 ? { use: { x: known.map((s) => s.k), y: known.map((s) => s.auc.value), low: known.map((s) => s.auc.low ?? s.auc.value), high: known.map((s) => s.auc.high ?? s.auc.value) }, limit: { x: steps.map((s) => s.k), y: steps.map((s) => s.reidentification) } } : null;
  }, [steps]);
  return html`
    <${Card} tone=${records ? "eyes" : ""}>
      <div class="dial">
        <div class="row between"><output for="k">k = ${at}</output><${Button} kind="main" onClick=${() => go("make", { k: String(at), data: data || parameters.data })}>Make a release with this<//></div>
        <input id="k" type="range" aria-label="k" min="0" max=${Math.max(0, ks.length - 1)} value=${Math.max(0, ks.indexOf(at))} disabled=${ks.length < 2} aria-valuetext=${`k ${at}`} onInput=${(event) => setK(ks[Number(event.target.value)])} />
        <div class="ends"><span>more accurate</span><span>more private</span></div>
      </div>
      <${Note} tone="open">Groups hide who is who inside a group. Nothing is proven about an attacker who knows something else: there is no limit here, only 1 in k.<//>
      ${records && html`<div class="row"><${Button} disabled=${!data} busy=${run.busy} onClick=${preview.start}>Look at my records, and note it<//></div>`}
      <${Progress} run=${run} verb="Computing groups" /><${Problem}>${run.problem}<//>
    <//>
    ${drawn && here && html`<${Views} base=${base} steps=${steps} knob="k" name=${`k ${at}`} at=${at} mode=${mode} auc=${`AUC ${number(here.auc?.value, 2)}`} limitWords=${`1 in ${at} for a record of a group`}
      curve=${{ curve: drawn.use, levels: [], words: records ? "Measured on records that the groups did not use." : "Measured on made-up records." }}
      limits=${{ curve: drawn.limit, levels: [], from: 0, to: 1.02, words: "The line: the chance of picking the right record of a group. Dots: an attack on who was used, as an AUC; nothing limits it." }}
      dots=${[]} attacks=${steps.filter((step) => step.attack).map((step) => ({ x: step.k, ...step.attack }))} />`}`;
};

const TABS = { epsilon: ["Epsilon", "differential privacy"], k: ["k", "groups"], noise: ["Noise and lambda", "obfuscated copies"] };

export const Dial = ({ desk, parameters }) => {
  const [tab, setTab] = useState(parameters.k ? "k" : "epsilon");
  const [mode, setMode] = useState("public");
  const [data, setData] = useState(parameters.data ?? "");
  const [units, setUnits] = useState(parameters.units ?? "1000");
  const [names, setNames] = useState(parameters.classes ?? "A, B");
  const [features, setFeatures] = useState(parameters.features ?? "1280");
  const [realAuc, setRealAuc] = useState(parameters.auc ?? "0.95");
  const list = names.split(",").map((one) => one.trim()).filter(Boolean);
  const good = Number(units) >= 20 && list.length > 1 && Number(features) >= 2 && Number(realAuc) > 0.5 && Number(realAuc) <= 1;
  const numbers = { units: Number(units), classes: { names: list }, features: Number(features), realAuc: Number(realAuc) };
  const move = (event) => {
    const order = Object.keys(TABS);
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = order[(order.indexOf(tab) + step + order.length) % order.length];
    setTab(next);
    document.getElementById(`tab-${next}`)?.focus();
  };
  return html`<header><h1>How private, how useful?</h1><p>Turn the dial and watch what samples look like, what a classifier would reach, and what no attacker can exceed.</p></header>
  <div class="stack">
    <div class="tabs" role="tablist" aria-label="Kind of protection" onKeyDown=${move}>${Object.entries(TABS).map(([name, [title, about]]) => html`<button type="button" role="tab" id=${`tab-${name}`} aria-selected=${tab === name} aria-controls="panel" tabindex=${tab === name ? 0 : -1} onClick=${() => setTab(name)}>${title} <small>${about}</small></button>`)}</div>
    <div id="panel" role="tabpanel" aria-labelledby=${`tab-${tab}`} class="stack">
      ${tab === "noise" ? html`<${Obfuscation} desk=${desk} />` : html`
        <details class="card about" open=${!good || mode === "records"}><summary>${mode === "public" ? html`Preview on public numbers: about ${Number(units).toLocaleString("en-US")} records or people, ${list.length} classes, ${features} features, an AUC of ${realAuc} on real data. Open this to type your own.` : "Preview on my records, for my eyes only"}</summary><div class="form">
          <div class="row apart">
            <${Radio} name="mode" label="Public numbers" checked=${mode === "public"} onChange=${() => setMode("public")} />
            <${Radio} name="mode" label="My records, for my eyes only" checked=${mode === "records"} onChange=${() => setMode("records")} />
          </div>
          ${mode === "public" ? html`<p class="muted">${PUBLIC}</p>
          <div class="columns small">
            <${Text} label="Records or people" value=${units} onChange=${setUnits} inputmode="numeric" hint="A rough number that may be public." />
            <${Text} label="Classes" value=${names} onChange=${setNames} hint="Separated by commas." />
            <${Text} label="Features" value=${features} onChange=${setFeatures} inputmode="numeric" hint="1280 for images; for a table, its columns." />
            <${Text} label="AUC on real data" value=${realAuc} onChange=${setRealAuc} inputmode="decimal" hint="How well a classifier tells the classes apart: 0.5 guesses, 1 is perfect. A guess will do." />
          </div>` : html`<${DataPicker} label="Records" data=${desk.data} value=${data} onChange=${setData} />`}
        </div></details>
        ${good ? (tab === "epsilon" ? html`<${Epsilon} key=${mode} desk=${desk} parameters=${parameters} numbers=${numbers} mode=${mode} data=${data} />` : html`<${Groups} key=${mode} parameters=${parameters} numbers=${numbers} mode=${mode} data=${data} />`) : html`<${Note} tone="open">A preview needs 20 records or more, two classes or more, two features or more, and an AUC above 0.5 and at most 1.<//>`}`}
    </div>
  </div>`;
};
