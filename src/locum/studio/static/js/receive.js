import { html } from "../vendor/htm-preact.js";
export const Receive = () => html`<header><h1>Receive</h1></header>`;
