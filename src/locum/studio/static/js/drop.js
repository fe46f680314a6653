// Files and folders that a person drops, or picks: copied to the server one by one, then put in place as a whole.

import { html, useRef, useState } from "../vendor/htm-preact.js";
import { post, put } from "./api.js";
import { Button, Problem } from "./ui.js";

const AT_ONCE = 4;

async function* walk(entry, above = "") {
  const path = above + entry.name;
  if (entry.isFile) {
    yield [path, await new Promise((good, bad) => entry.file(good, bad))];
    return;
  }
  const reader = entry.createReader();
  for (;;) {
    // A reader gives at most a hundred entries at a time.
    const entries = await new Promise((good, bad) => reader.readEntries(good, bad));
    if (!entries.length) return;
    for (const one of entries) yield* walk(one, `${path}/`);
  }
}

export const Drop = ({ words, end, onDone }) => {
  const [state, setState] = useState({});
  const [over, setOver] = useState(false);
  const folder = useRef(null);
  const file = useRef(null);

  const copy = async (files) => {
    setState({ busy: true, done: 0, total: files.length });
    let id;
    try {
      ({ id } = await post("drops"));
      // What systems leave in folders, hidden or not.
      const wanted = files.filter(([path]) => !/(^|\/)(\.|Thumbs\.db$|desktop\.ini$|__MACOSX\/)/.test(path));
      let next = 0;
      const work = async () => {
        while (next < wanted.length) {
          const [path, content] = wanted[next++];
          await put(`drops/${id}/file`, { path }, content);
          setState((old) => ({ ...old, done: old.done + 1, total: wanted.length }));
        }
      };
      await Promise.all(Array.from({ length: AT_ONCE }, work));
      const found = await post(`drops/${id}/${end}`);
      setState({ said: `Copied: ${found.path}` });
      onDone(found);
    } catch (error) {
      if (id) post(`drops/${id}/forget`).catch(() => {});
      setState({ problem: error.message });
    }
  };
  const dropped = async (event) => {
    event.preventDefault();
    setOver(false);
    const entries = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry()).filter(Boolean);
    const files = [];
    for (const entry of entries) for await (const found of walk(entry)) files.push(found);
    if (files.length) copy(files);
  };
  const picked = (event) => {
    const files = [...event.target.files].map((one) => [one.webkitRelativePath || one.name, one]);
    event.target.value = "";
    if (files.length) copy(files);
  };
  return html`<div class=${`drop ${over ? "over" : ""}`} onDragOver=${(event) => { event.preventDefault(); setOver(true); }} onDragLeave=${() => setOver(false)} onDrop=${dropped}>
    <p>${words}</p>
    <div class="row">
      <${Button} onClick=${() => folder.current.click()} busy=${state.busy}>Choose a folder<//>
      <${Button} onClick=${() => file.current.click()} busy=${state.busy}>Choose a file<//>
    </div>
    <input ref=${folder} type="file" hidden webkitdirectory onChange=${picked} aria-label="A folder" />
    <input ref=${file} type="file" hidden onChange=${picked} aria-label="A file" />
    ${state.busy && html`<div class="progress" role="status"><progress max=${state.total} value=${state.done} aria-label="Copying"></progress><span>${state.done} of ${state.total} files</span></div>`}
    ${state.said && html`<p role="status">${state.said}</p>`}
    <${Problem}>${state.problem}<//>
  </div>`;
};
