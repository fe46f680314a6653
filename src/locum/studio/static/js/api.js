// Talks to the studio's own server, and to nothing else.

const key = localStorage.getItem("locum-key") ?? "";

export class Refused extends Error {}

async function answer(response) {
  if (response.ok) return response.json();
  let words = `The studio answered ${response.status}.`;
  try {
    words = (await response.json()).error ?? words;
  } catch {
    // Not JSON: the status has to do.
  }
  throw new Refused(words);
}

async function send(path, options = {}) {
  try {
    return await fetch(path, { ...options, headers: { "x-locum-key": key, ...options.headers } });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused("The studio does not answer: is `locum studio` still running in its terminal?");
  }
}

export async function get(path, parameters = {}) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== undefined));
  return answer(await send(`/api/${path}?${query}`));
}

export async function post(path, body) {
  const options = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body ?? {}) };
  return answer(await send(`/api/${path}`, options));
}

export async function put(path, parameters, body) {
  return answer(await send(`/api/${path}?${new URLSearchParams(parameters)}`, { method: "PUT", body }));
}

export async function download(path, parameters, name) {
  const response = await send(`/api/${path}?${new URLSearchParams(parameters)}`);
  if (!response.ok) return answer(response);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await response.blob());
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// Events of a job, from the first or from the last one seen; after a break it goes on where it was.
export function follow(job, onEvent, onOver) {
  const stop = new AbortController();
  let seen = 0;
  const listen = async () => {
    while (!stop.signal.aborted) {
      try {
        const response = await send(`/api/jobs/${job}/events`, {
          headers: { "last-event-id": String(seen) },
          signal: stop.signal,
        });
        if (!response.ok) return onOver(await get(`jobs/${job}`));
        const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
        let text = "";
        for (;;) {
          const { done, value } = await reader.read();
          if (done) break;
          text += value;
          const blocks = text.split("\n\n");
          text = blocks.pop();
          for (const block of blocks) {
            const lines = Object.fromEntries(
              block
                .split("\n")
                .filter((line) => !line.startsWith(":"))
                .map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 1).trim()]),
            );
            if (!lines.data) continue;
            if (lines.event === "over") return onOver(await get(`jobs/${job}`));
            seen = Number(lines.id ?? seen);
            onEvent(JSON.parse(lines.data));
          }
        }
      } catch (error) {
        if (stop.signal.aborted) return;
      }
      await new Promise((wake) => setTimeout(wake, 1000));
    }
  };
  listen();
  return () => stop.abort();
}
