// Noise and lambda: what a receiver keeps and what an attacker finds in obfuscated copies, measured on a table.

import { html, useEffect, useMemo, useState } from "../vendor/htm-preact.js";
import { get, post } from "./api.js";
import { Chart } from "./chart.js";
import { Button, Card, Check, Command, Note, Problem, Progress, Select, Term, Text, count, figure, number, short, useFacts, useJob } from "./ui.js";

const TABLES = /\.(csv|parquet|npz)$/i;
// More values than this are numbers, not kinds.
const MOST = 50;
const SLOW = { lambdas: [-50], limit: 500 };

const Slider = ({ id, name, values, value, onChange }) => {
  const words = `${name} ${short(value)}`;
  return html`<div class="dial">
    <div class="row"><label for=${id}><output for=${id}>${words}</output></label> <${Term} name=${name}>What is this?<//></div>
    <input id=${id} type="range" aria-label=${name} min="0" max=${values.length - 1} value=${values.indexOf(value)} disabled=${values.length < 2} aria-valuetext=${words} onInput=${(event) => onChange(values[Number(event.target.value)])} />
    <div class="ends"><span>keeps more</span><span>hides more</span></div>
  </div>`;
};

// One side of the trade-off over noise, at one lambda.
const Side = ({ id, title, what, part, points, levels, at, from, to, words }) => {
  const drawn = useMemo(() => ({ x: points.map((p) => p.noise), y: points.map((p) => p[part].value), low: points.map((p) => p[part].low), high: points.map((p) => p[part].high) }), [points, part]);
  const lines = useMemo(() => [{ y: levels.originals.value, words: "originals" }, { y: levels.guessing.value, words: "guessing" }], [levels]);
  const here = points.find((p) => p.noise === at);
  const headline = `finds ${what} at ${figure(here[part], 2)}; originals ${number(levels.originals.value, 2)}; guessing ${number(levels.guessing.value, 2)}`;
  return html`<${Card} title=${title} id=${id} tone="eyes">
    <p class="headline" role="status">${headline}</p>
    ${points.length > 1 && html`<${Chart} curve=${drawn} levels=${lines} at=${at || 1e-9} from=${from} to=${to} axis="noise" logarithmic=${false} label=${`${title} over noise; now ${headline}`} />`}
    <small>${words(here)}</small>
  <//>`;
};

const Found = ({ result }) => {
  const { noises, lambdas, levels, measured } = result;
  const [noise, setNoise] = useState(noises[Math.floor(noises.length / 2)]);
  const [lambda, setLambda] = useState(lambdas[0]);
  const points = useMemo(() => result.points.filter((point) => point.lambda === lambda).sort((a, b) => a.noise - b.noise), [result, lambda]);
  // One scale for both sides and all settings, so that they can be compared while a slider moves.
  const [from, to] = useMemo(() => {
    const all = [...result.points.flatMap((p) => [p.receiver, p.attacker]), ...Object.values(levels.receiver), ...Object.values(levels.attacker)];
    return [Math.max(0, Math.min(...all.map((e) => e.low)) - 0.02), Math.min(1.02, Math.max(...all.map((e) => e.high)) + 0.02)];
  }, [result]);
  const keep = result.keep.join(", ");
  return html`
    <${Card} title="Turn the knobs" id="knobs" tone="eyes">
      <div class="columns">
        <${Slider} id="noise" name="noise" values=${noises} value=${noise} onChange=${setNoise} />
        ${lambdas.length > 1 && html`<${Slider} id="lambda" name="lambda" values=${lambdas} value=${lambda} onChange=${setLambda} />`}
      </div>
      <${Note} tone="open">Measured, not proven: a better attacker may find more.<//>
      <${Problem}>${result.caution}<//>
    <//>
    <div class="views">
      <${Side} id="receiver" title="The receiver" what=${keep} part="receiver" points=${points} levels=${levels.receiver} at=${noise} from=${from} to=${to}
        words=${() => "Accuracy on real records of a model that learned from copies. The band is a 95% interval."} />
      <${Side} id="attacker" title="The strongest attacker" what=${result.hide} part="attacker" points=${points} levels=${levels.attacker} at=${noise} from=${from} to=${to}
        words=${(here) => `The most accurate of those tried; here “${here.attacker_name}”. From ${keep} alone, which every copy carries, an attacker gets ${figure(levels.attacker.kept_alone, 2)}. The band is a 95% interval.`} />
    </div>
    <${Card} title="How it was measured" id="how">
      <dl class="facts">
        <dt>Learned from</dt><dd>${count(measured["records to learn from"], "record")}</dd>
        <dt>Tested on</dt><dd>${count(measured["test records"], "record")}. The obfuscator may have seen them, so the figures may be too good.</dd>
        <dt>Full report</dt><dd><code>${result.report}</code>, for your eyes only</dd>
      </dl>
      <div><h3>Write copies with these knobs, in a terminal, in this folder</h3><${Command}>${`${result.apply} --noise ${noise} --lambda ${lambda}`}<//></div>
    <//>`;
};

const Columns = ({ legend, hint, names, chosen, onChange }) => html`
  <fieldset><legend>${legend}</legend>${hint && html`<small>${hint}</small>`}
    <div class="columns small">${names.map((name) => html`<${Check} key=${name} label=${name} checked=${chosen.includes(name)} onChange=${(on) => onChange(on ? [...chosen, name] : chosen.filter((one) => one !== name))} />`)}</div>
  </fieldset>`;

export const Obfuscation = ({ desk }) => {
  const tables = desk.data.filter((name) => TABLES.test(name));
  const [data, setData] = useState("");
  const [keep, setKeep] = useState([]);
  const [hide, setHide] = useState("");
  const [drop, setDrop] = useState(null);
  const [limit, setLimit] = useState("");
  const [found, setFound] = useState(null);
  const [command, setCommand] = useState(null);
  const columns = useFacts(data && "columns", { path: data });
  const known = columns.value?.path === data ? columns.value : null;
  const images = known?.kind === "image";
  const run = useJob("trade-off", (given) => {
    // A job that was running before a reload: the form shows what it measures.
    setData(given.data);
    setKeep(given.keep);
    setHide(given.hide);
    setDrop(given.drop);
    setLimit(String(given.limit));
    return true;
  });
  const all = known?.columns ?? [];
  const kinds = all.filter((one) => one.values >= 2 && one.values <= MOST && !one.missing).map((one) => one.name);
  const dropped = (drop ?? all.filter((one) => one.identifies).map((one) => one.name)).filter((name) => !keep.includes(name) && name !== hide);
  const records = limit || String(images ? SLOW.limit : 1500);
  const body = { data, keep, hide, drop: images ? [] : dropped, limit: Number(records), ...(images ? { lambdas: SLOW.lambdas } : {}) };
  const ready = Boolean(known && keep.length && hide && Number.isInteger(body.limit) && body.limit >= 40);
  const asked = JSON.stringify(body);
  const choose = (name) => {
    setData(name);
    setKeep([]);
    setHide("");
    setDrop(null);
    setLimit("");
  };
  useEffect(() => {
    setCommand(null);
    setFound(null);
    if (!ready) return undefined;
    let current = true;
    // The same may have been measured before: nothing is read again unless it is asked for.
    (async () => {
      const same = (given) => Object.entries(body).every(([name, value]) => JSON.stringify(given[name]) === JSON.stringify(value));
      const before = (await get("jobs")).find((job) => job.kind === "trade-off" && job.state === "done" && same(job.arguments));
      const result = before && (await get(`jobs/${before.id}`)).result;
      if (current && result) setFound(result);
    })().catch(() => {});
    return () => {
      current = false;
    };
  }, [ready && asked]);
  useEffect(() => {
    if (run.result) setFound(run.result);
  }, [run.result]);
  const show = async () => {
    try {
      setCommand(command ? null : { words: (await post("command", { kind: "trade-off", arguments: body })).command });
    } catch (error) {
      setCommand({ error: error.message });
    }
  };
  return html`
    <${Card} title="What to keep, what to hide" id="choice" tone="eyes">
      <${Note} tone="bad">For your eyes only: this reads your records. The figures stay on this computer.<//>
      <p>An obfuscated copy of a record keeps what a receiver needs and hides the rest under noise. Copies are made with two knobs; what they give away can be measured, but nothing about them is proven.</p>
      ${tables.length ? html`<div class="form">
        <${Select} label="Table" value=${data} options=${tables} empty="Choose a table" onChange=${choose} hint="A .csv or .parquet file, or an .npz of images." />
        <${Problem}>${columns.error}<//>
        ${columns.loading && html`<p class="muted" role="status">Reading the columns…</p>`}
        ${known && (kinds.length > 1 ? html`
          <${Columns} legend="Keep for the receiver" hint=${`Columns with 2 to ${MOST} different values and none missing.`} names=${kinds.filter((name) => name !== hide)} chosen=${keep} onChange=${setKeep} />
          <${Select} label="Hide from everyone" value=${hide} options=${kinds.filter((name) => !keep.includes(name))} empty="Choose a column" onChange=${setHide} hint=${images ? "" : "Copies do not have this column; attackers guess it from the others."} />
          <details><summary>More settings</summary><div class="form">
            ${!images && html`<${Columns} legend="Leave out as well" hint="Names, patient numbers, and anything else that must not appear in any form." names=${all.map((one) => one.name).filter((name) => !keep.includes(name) && name !== hide)} chosen=${dropped} onChange=${setDrop} />`}
            <${Text} label="Records to use" value=${records} onChange=${setLimit} inputmode="numeric" hint="The first ones, 40 or more. More take longer and give narrower intervals." />
          </div></details>` : html`<${Note} tone="open">Two columns with 2 to ${MOST} different values are needed, one to keep and one to hide.<//>`)}
        <div class="row">
          <${Button} kind="main" disabled=${!ready} busy=${run.busy} onClick=${() => { setFound(null); run.start(body); }}>${found ? "Measure again" : "Measure the trade-off"}<//>
          <${Button} disabled=${!ready} aria-expanded=${Boolean(command)} onClick=${show}>${command ? "Hide the command lines" : "Show the command lines"}<//>
          <small>Takes about a minute.</small>
        </div>
        ${command?.words && html`<div class="form"><h3>The same in a terminal, in this folder</h3>${command.words.split("\n").map((line) => html`<${Command} key=${line}>${line}<//>`)}</div>`}
        <${Problem}>${command?.error}<//>
      </div>` : html`<${Note}>There is no table in this folder yet: drop one on the screen “Data”.<//>`}
      <${Progress} run=${run} verb="Measuring" /><${Problem}>${run.problem}<//>
    <//>
    ${found && html`<${Found} key=${JSON.stringify([found.keep, found.hide, found.points.length])} result=${found} />`}`;
};
