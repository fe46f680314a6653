import { html } from "../vendor/htm-preact.js";
export const Dial = () => html`<header><h1>Dial</h1></header>`;
