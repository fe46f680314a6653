// Make a release: what it costs, the same as a command line, then the work itself.

import { html, useEffect, useState } from "../vendor/htm-preact.js";
import { post } from "./api.js";
import { Badge, Budget, Button, Card, Check, Command, DataPicker, Note, Problem, Progress, Radio, Select, Term, Text, figure, go, short, upward, useFacts, useJob, useReveal, verdictTone } from "./ui.js";

const freeName = (desk, data) => {
  const base = data.replace(/#.*$/, "").replace(/\.(npz|csv|parquet|safetensors)$/i, "");
  let name = `${base}-release`;
  for (let n = 2; desk.releases.includes(name); n++) name = `${base}-release-${n}`;
  return name;
};

const Made = ({ result }) => {
  useReveal("made");
  return html`<${Card} title=${`${result.release} was made`} tone=${result.claim.dp ? "good" : "open"} id="made">
  <dl class="facts">
    <dt>Guarantee</dt><dd>${result.claim.dp ? `epsilon ${short(result.claim.dp.epsilon)}, delta ${short(result.claim.dp.delta)}, per ${result.claim.unit}` : "none: nothing is proven about any single person"}</dd>
    ${result.limit && html`<dt>Proven limit</dt><dd>${result.limit.sentence}</dd>`}
    ${result.left && html`<dt>Budget left</dt><dd>${result.left.epsilon < 1e-4 ? "nothing: another release of these data needs a larger budget" : `epsilon ${short(result.left.epsilon)}, delta ${short(result.left.delta)}`}</dd>`}
    ${result.forecasts?.length > 0 && html`<dt>Expected usefulness</dt><dd>about ${Math.round(100 * result.forecasts[0].kept.value)} % of what real data gain over chance in AUC (${Math.round(100 * result.forecasts[0].kept.low)} to ${Math.round(100 * result.forecasts[0].kept.high)} %), judging by releases of other data</dd>`}
    <dt>First attack</dt><dd>${result.membership ? html`<${Badge} tone=${verdictTone(result.membership.verdict)}>${result.membership.verdict}<//> AUC ${figure(result.membership.attack)}` : result.problem?.includes("--non-members") ? "not run: it needs records that were not used" : result.problem}</dd>
    <dt>Fingerprint</dt><dd><code>${result.fingerprint}</code></dd>
  </dl>
  <div class="row"><${Button} kind="main" onClick=${() => go("attack", { release: result.release })}>Attack it<//><${Button} onClick=${() => go("decide", { release: result.release })}>Decide about it<//></div>
<//>`;
};

export const Make = ({ desk, parameters, refresh }) => {
  const [data, setData] = useState(parameters.data ?? (desk.data.length === 1 ? desk.data[0] : ""));
  const [out, setOut] = useState(data ? freeName(desk, data) : "");
  const [kind, setKind] = useState(parameters.k ? "k" : "dp");
  const [epsilon, setEpsilon] = useState(parameters.epsilon ?? "1");
  const [delta, setDelta] = useState(parameters.delta ?? "1e-6");
  const [unit, setUnit] = useState(parameters.unit ?? "auto");
  const [k, setK] = useState(parameters.k ?? "5");
  const [holding, setHolding] = useState("default");
  const [names, setNames] = useState("");
  const [classes, setClasses] = useState("");
  const [scale, setScale] = useState("");
  const [ranges, setRanges] = useState("");
  const [sure, setSure] = useState(false);
  const [plan, setPlan] = useState({});
  const run = useJob("fit");

  const chosen = (value) => {
    setData(value);
    setOut(value ? freeName(desk, value) : "");
  };
  const held = useFacts(data ? "data" : null, { path: data.replace(/#.*$/, "") });
  const table = kind === "dp" && held.value?.columns > 0;
  const body = { data, out };
  if (table && scale === "ranges" && ranges) body.ranges = ranges;
  if (table && scale === "standardized") body.standardized = true;
  const scaled = !table || body.ranges || body.standardized;
  if (kind === "dp") {
    Object.assign(body, { epsilon: Number(epsilon), delta: Number(delta), unit, holding: holding.trim() || "default" });
    if (names === "public") body.classes_public = true;
    if (names === "declared") body.classes = classes.split(",").map((one) => one.trim()).filter(Boolean);
  } else {
    body.no_dp = true;
    if (kind === "k") Object.assign(body, { generator: "ksame", k: Number(k) });
  }
  const ready = data && out && (kind !== "dp" || (names && (names !== "declared" || body.classes?.length > 1))) && scaled;
  useEffect(() => {
    setSure(false);
    if (!data || !out) return setPlan({});
    let current = true;
    const timer = setTimeout(() => post("plan", body).then((value) => current && setPlan({ value }), (error) => current && setPlan({ error: error.message })), 150);
    return () => {
      current = false;
      clearTimeout(timer);
    };
  }, [JSON.stringify(body)]);
  useEffect(() => {
    if (run.result) refresh();
  }, [run.result]);
  const { value: cost, error } = plan;
  // What it cost is known; a second one needs another name.
  const paid = !run.busy && run.result?.release === out;
  return html`<header><h1>Make a release</h1><p>A release is a stand-in for your data: a small file that others draw samples from and train on. Your records stay here.</p></header>
  <div class="wide-left">
    <div class="stack">
      <${Card} title="What to make" id="what"><div class="form">
        <${DataPicker} label="Records" data=${desk.data} value=${data} onChange=${chosen} usual="train, or all" hint="The release is made from the part “train”, or from all records if there are no parts." />
        ${held.value?.parts?.length === 0 && html`<${Note} tone="open">This data set has no parts: all its records would be used, and none would be left to attack the release with or to measure its usefulness. Put some into folders “train”, “val” and “test” first, or set aside another data set of the same population.<//>`}
        <${Text} label="Name of the release" value=${out} onChange=${setOut} hint="A new folder below this one." />
        <fieldset><legend>Guarantee</legend>
          <${Radio} name="kind" label="Differential privacy" checked=${kind === "dp"} onChange=${() => setKind("dp")} hint="Proven, whatever an attacker knows. Paid from the budget of these data." />
          <${Radio} name="kind" label="Groups of k (k-Same)" checked=${kind === "k"} onChange=${() => setKind("k")} hint="Each released vector is the mean of k records. Nothing is proven about what else an attacker knows." />
          <${Radio} name="kind" label="None" checked=${kind === "none"} onChange=${() => setKind("none")} hint="Nothing is proven about any single person, and attacks usually succeed." />
        </fieldset>
        ${kind === "dp" && html`
          <div class="columns small">
            <${Text} label="Epsilon" term="epsilon" value=${epsilon} onChange=${setEpsilon} inputmode="decimal" hint="Lower is more private; 1 is usual." />
            <${Text} label="Delta" term="delta" value=${delta} onChange=${setDelta} inputmode="decimal" hint="1e-6 suits up to 100,000 people." />
            <${Select} label="Unit" term="unit" value=${unit} onChange=${setUnit} options=${[["auto", "subject, if known"], ["record", "one record"], ["subject", "one subject"]]} />
          </div>
          <p><a href=${`#/dial?${new URLSearchParams({ epsilon, delta, data })}`}>Turn the dial</a> before you pay: it shows how private and how useful a release of about this many records is at each epsilon.</p>
          <details><summary>Budget: ${holding.trim() || "default"}</summary><${Text} label="Name of the data holding" term="data holding" value=${holding} onChange=${setHolding} maxlength="100" hint="All data sets of a folder share the budget “default”. Another name opens a second budget: right only if nobody is in both data sets." /></details>
          <fieldset><legend>Names of the classes leave with the release</legend>
            <${Radio} name="names" label="Everyone may know the class names in the data" checked=${names === "public"} onChange=${() => setNames("public")} hint="The claim will say that it assumes this." />
            <${Radio} name="names" label="I declare all classes that can occur" checked=${names === "declared"} onChange=${() => setNames("declared")} hint="You type them, so none is taken from the data. Needed if a class has fewer than 20 records." />
            ${names === "declared" && html`<${Text} label="Classes, separated by commas" value=${classes} onChange=${setClasses} />`}
          </fieldset>`}
        ${table && html`<fieldset><legend>Usual range of each column</legend>
          <${Radio} name="scale" label="A file gives the ranges" checked=${scale === "ranges"} onChange=${() => setScale("ranges")} hint="A table with name, low and high and one line per column. The ranges must be known without looking at the records, or the guarantee is void." />
          ${scale === "ranges" && html`<${Select} label="File of ranges" value=${ranges} onChange=${setRanges} empty="Choose a file" options=${desk.data.filter((one) => one !== data && /\.csv$/i.test(one)).map((one) => [one, one])} />`}
          <${Radio} name="scale" label="The columns are standardized" checked=${scale === "standardized"} onChange=${() => setScale("standardized")} hint="Mean 0 and variance 1, by public numbers and not by these records." />
        </fieldset>`}
        ${kind === "k" && html`<${Text} label="k: smallest size of a group" term="k-Same" value=${k} onChange=${setK} inputmode="numeric" />`}
        ${kind !== "dp" && html`<${Note} tone="bad">This release will have no proven guarantee. A policy then judges it by attacks alone, and the strongest ones take minutes.<//>`}
      </div><//>
      ${run.result && html`<${Made} result=${run.result} />`}
    </div>
    <${Card} title="What it costs" id="cost">
      <${Problem}>${error}<//>
      ${paid ? html`<p>Paid: ${out} was made. For another release, choose another name.</p>` : cost ? html`
        ${cost.cost ? html`<p>Epsilon <strong>${short(cost.cost.epsilon)}</strong> and delta <strong>${short(cost.cost.delta)}</strong> of the budget. What is spent is never given back.</p>
          <p>No attack on it can have an AUC above <strong>${upward(cost.limit)}</strong> on average (a coin flip has 0.5). <${Term} name="proven limit">What is this?<//></p>
          ${cost.holding ? html`<${Budget} holding=${cost.holding} asked=${cost.cost.epsilon} />` : html`<p class="muted">Nothing was spent on these data yet: this opens their budget with exactly this amount.</p>`}` : html`<p>Nothing is paid, because nothing is guaranteed.</p>`}
        <${Problem}>${cost.problem}<//>
        <div><h3>The same in a terminal, in this folder</h3><${Command}>${cost.command}<//></div>
        <${Check} checked=${sure} onChange=${setSure} disabled=${!ready || run.busy} label=${cost.cost ? "Spend it, and make the release" : "Make a release without a guarantee"} />
        ${!ready && html`<p class="muted">${!names && kind === "dp" ? "First choose who may know the class names." : !scaled ? "First say what the usual range of each column is." : "Some fields are still empty."}</p>`}
        <${Button} kind="main" disabled=${!ready || !sure || Boolean(cost.problem)} busy=${run.busy} onClick=${() => { setSure(false); run.start(body); }}>Make the release<//>` : html`<p class="muted">${error ? "" : "Choose records first."}</p>`}
      <${Progress} run=${run} verb="Reading and fitting" />
      <${Problem}>${run.problem}<//>
    <//>
  </div>`;
};
