import { html } from "../vendor/htm-preact.js";
export const Obfuscation = () => html`<p></p>`;
