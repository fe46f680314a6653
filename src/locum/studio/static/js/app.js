// The shell: navigation, help, and one screen at a time.

import { html, render, useEffect, useRef, useState } from "../vendor/htm-preact.js";
import { Button, Help, Problem, useFacts, useRoute } from "./ui.js";
import { Desk } from "./desk.js";
import { Data } from "./data.js";
import { Dial } from "./dial.js";
import { Make } from "./make.js";
import { Attack } from "./attack.js";
import { Decide } from "./decide.js";
import { Receive } from "./receive.js";

const SCREENS = {
  desk: ["Desk", "what is here", Desk],
  data: ["Data", "what you hold", Data],
  dial: ["Dial", "how private, how useful", Dial],
  make: ["Make", "a release", Make],
  attack: ["Attack", "what attackers find", Attack],
  decide: ["Decide", "may it leave?", Decide],
  receive: ["Receive", "a release from others", Receive],
};

const Drawer = ({ term, onClose }) => {
  const { value: terms, error } = useFacts("terms");
  const [sought, setSought] = useState("");
  const own = useRef(null);
  useEffect(() => {
    own.current?.focus();
    const pressed = (event) => event.key === "Escape" && onClose();
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
  const shown = Object.entries(terms ?? {}).filter(([name, words]) => `${name} ${words}`.toLowerCase().includes(sought.toLowerCase()));
  return html`<aside class="drawer" aria-label="Help" tabindex="-1" ref=${own}>
    <div class="row between"><h2>What the words mean</h2><${Button} kind="quiet" onClick=${onClose}>Close<//></div>
    <${Problem}>${error}<//>
    ${terms && term && html`<div class="chosen"><strong>${term}</strong><p>${terms[term] ?? "Not explained yet."}</p></div>`}
    <div class="field"><label class="label" for="seek">Find a word</label><input id="seek" type="text" value=${sought} onInput=${(event) => setSought(event.target.value)} /></div>
    <dl>${shown.map(([name, words]) => html`<dt>${name}</dt><dd>${words}</dd>`)}</dl>
  </aside>`;
};

const App = () => {
  const { screen, parameters } = useRoute();
  const [again, setAgain] = useState(0);
  const desk = useFacts("desk", {}, again);
  const [help, setHelp] = useState(null);
  const before = useRef(null);
  const entered = useRef("");
  const open = (term) => {
    before.current = document.activeElement;
    setHelp({ term });
  };
  const close = () => {
    setHelp(null);
    before.current?.focus?.();
  };
  const known = SCREENS[screen] ? screen : "desk";
  const [title, , Screen] = SCREENS[known];
  useEffect(() => {
    document.title = `${title} – Locum studio`;
    scrollTo(0, 0);
  }, [known]);
  const chosen = [...document.querySelectorAll("main select")].indexOf(document.activeElement);
  useEffect(() => {
    // What led here may be gone: the keyboard goes on in the same list, or at the top of the screen.
    if (entered.current === known) document.querySelectorAll("main select")[chosen]?.focus({ preventScroll: true });
    if (entered.current && document.activeElement === document.body) document.getElementById("main").focus({ preventScroll: true });
    entered.current = known;
  }, [known, JSON.stringify(parameters)]);
  return html`<${Help.Provider} value=${open}>
    <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.getElementById("main").focus(); }}>Skip to the content</a>
    <div class="shell">
      <nav class="rail" aria-label="Screens">
        <a class="brand" href="#/desk">Locum studio<small>${desk.value?.root ?? ""}</small></a>
        <ul>${Object.entries(SCREENS).map(([name, [words, about]]) => html`<li><a href=${`#/${name}`} aria-current=${name === known ? "page" : undefined}>${words}<small>${about}</small></a></li>`)}</ul>
        <div class="foot"><${Button} onClick=${() => open("")}>Help<//><small>${desk.value ? `Locum ${desk.value.version}. This page talks to this computer only.` : ""}</small></div>
      </nav>
      <main id="main" tabindex="-1">
        <${Problem}>${desk.error}<//>
        ${desk.value && html`<${Screen} key=${known + JSON.stringify(parameters)} desk=${desk.value} parameters=${parameters} refresh=${() => setAgain((n) => n + 1)} />`}
      </main>
    </div>
    ${help && html`<${Drawer} term=${help.term} onClose=${close} />`}
  <//>`;
};

document.getElementById("app").replaceChildren();
render(html`<${App} />`, document.getElementById("app"));
