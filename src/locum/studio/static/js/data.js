import { html } from "../vendor/htm-preact.js";
export const Data = () => html`<header><h1>Data</h1></header>`;
